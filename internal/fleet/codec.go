package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"go.temporal.io/sdk/converter"
)

// payloadCodec returns a codec whose requests end with a context. An error that wraps
// converter.ErrUnableToDecode is a refusal, which stays; every other one may pass.
type payloadCodec func(context.Context) converter.PayloadCodec

// remoteCodec is a codec server, as of TEMPORAL_CODEC_ENDPOINT: the URL before /encode
// and /decode. The others are the headers Authorization and X-Namespace.
func remoteCodec(endpoint, auth, namespace string) payloadCodec {
	return func(ctx context.Context) converter.PayloadCodec {
		return converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{
			Endpoint: strings.TrimSuffix(endpoint, "/"),
			Client:   http.Client{Transport: transport{}},
			ModifyRequest: func(request *http.Request) error {
				*request = *request.WithContext(ctx)
				request.Header.Set("X-Namespace", namespace)
				if auth != "" {
					request.Header.Set("Authorization", auth)
				}
				return nil
			},
		})
	}
}

// transport makes errors of answers that refuse or fail.
type transport struct{}

func (transport) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil || answer.StatusCode < http.StatusBadRequest {
		return answer, err
	}
	defer func() { _ = answer.Body.Close() }()
	const longest = 200
	text, _ := io.ReadAll(io.LimitReader(answer.Body, longest))
	says := fmt.Sprintf("it answers %d %s: %s", answer.StatusCode, http.StatusText(answer.StatusCode), strings.TrimSpace(strings.ToValidUTF8(string(text), "?")))
	err = errors.New(strings.TrimSuffix(says, ": "))
	switch answer.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		err = refusal{err}
	}
	return nil, err
}

// refusal is an answer about the payloads: no error of the server or of the way there.
type refusal struct{ error }

func (refusal) Unwrap() error { return converter.ErrUnableToDecode }
