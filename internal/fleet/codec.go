package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// payloadCodec returns a codec whose requests end with a context. An error that wraps
// converter.ErrUnableToDecode is a refusal, which stays; every other one may pass.
type payloadCodec func(context.Context) converter.PayloadCodec

// localCodec is a codec of this process.
func localCodec(c converter.PayloadCodec) payloadCodec {
	return func(context.Context) converter.PayloadCodec { return c }
}

// remoteCodec is a codec server, as of TEMPORAL_CODEC_ENDPOINT. The endpoint is the
// URL before /encode and /decode; its path may be a secret. The others are the headers
// Authorization and X-Namespace.
func remoteCodec(endpoint, auth, namespace string) payloadCodec {
	return func(ctx context.Context) converter.PayloadCodec {
		return remote{endpoint, converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{
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
		})}
	}
}

// remote says in its errors which server failed, without the path.
type remote struct {
	endpoint string
	converter.PayloadCodec
}

// Encode sends payloads to be encoded.
func (r remote) Encode(p []*common.Payload) ([]*common.Payload, error) {
	made, err := r.PayloadCodec.Encode(p)
	return made, r.explain(err)
}

// Decode sends payloads to be decoded.
func (r remote) Decode(p []*common.Payload) ([]*common.Payload, error) {
	made, err := r.PayloadCodec.Decode(p)
	return made, r.explain(err)
}

func (r remote) explain(err error) error {
	if err == nil {
		return nil
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	at := ""
	if u, _ := url.Parse(r.endpoint); u != nil && u.Host != "" {
		at = " at " + u.Scheme + "://" + u.Host
	}
	return fmt.Errorf("the codec server%s (TEMPORAL_CODEC_ENDPOINT) failed: %w", at, err)
}

// transport makes errors of answers that refuse or fail.
type transport struct{}

// RoundTrip implements http.RoundTripper.
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

// Unwrap implements errors.Is.
func (refusal) Unwrap() error { return converter.ErrUnableToDecode }
