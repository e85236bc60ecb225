package rpccodec

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

// Codec is a converter.PayloadCodec that ends with a context. An error that wraps
// converter.ErrUnableToDecode is a refusal, which stays; every other one may pass.
type Codec interface {
	Encode(context.Context, []*common.Payload) ([]*common.Payload, error)
	Decode(context.Context, []*common.Payload) ([]*common.Payload, error)
}

// Local is a codec of this process.
func Local(c converter.PayloadCodec) Codec { return local{c} }

type local struct{ converter.PayloadCodec }

// Encode asks the codec.
func (l local) Encode(_ context.Context, p []*common.Payload) ([]*common.Payload, error) {
	return l.PayloadCodec.Encode(p)
}

// Decode asks the codec.
func (l local) Decode(_ context.Context, p []*common.Payload) ([]*common.Payload, error) {
	return l.PayloadCodec.Decode(p)
}

// Remote is a codec server, as of TEMPORAL_CODEC_ENDPOINT.
type Remote struct {
	// Endpoint is the URL before /encode and /decode. Its path may be a secret.
	Endpoint string
	// Auth and Namespace are the headers Authorization and X-Namespace.
	Auth, Namespace string
}

// Encode sends payloads to be encoded.
func (r Remote) Encode(ctx context.Context, p []*common.Payload) ([]*common.Payload, error) {
	made, err := r.asked(ctx).Encode(p)
	return made, r.explain(err)
}

// Decode sends payloads to be decoded.
func (r Remote) Decode(ctx context.Context, p []*common.Payload) ([]*common.Payload, error) {
	made, err := r.asked(ctx).Decode(p)
	return made, r.explain(err)
}

func (r Remote) asked(ctx context.Context) converter.PayloadCodec {
	return converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{
		Endpoint: strings.TrimSuffix(r.Endpoint, "/"),
		Client:   http.Client{Transport: transport{}},
		ModifyRequest: func(request *http.Request) error {
			*request = *request.WithContext(ctx)
			request.Header.Set("X-Namespace", r.Namespace)
			if r.Auth != "" {
				request.Header.Set("Authorization", r.Auth)
			}
			return nil
		},
	})
}

// answerError is a codec server's answer that it refuses or fails.
type answerError struct {
	code int
	text string
}

// Error has the answer.
func (e *answerError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("it answers %d %s: %s", e.code, http.StatusText(e.code), e.text), ": ")
}

// Unwrap tells a refusal of the payloads from an error of the server or of the way there.
func (e *answerError) Unwrap() error {
	switch e.code {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return converter.ErrUnableToDecode
	}
	return nil
}

// transport makes errors of refusals and failures, with their code.
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
	return nil, &answerError{answer.StatusCode, strings.TrimSpace(strings.ToValidUTF8(string(text), "?"))}
}

// explain says which server failed, without the path.
func (r Remote) explain(err error) error {
	if err == nil {
		return nil
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	at := ""
	if u, _ := url.Parse(r.Endpoint); u != nil && u.Host != "" {
		at = " at " + u.Scheme + "://" + u.Host
	}
	return fmt.Errorf("the codec server%s (TEMPORAL_CODEC_ENDPOINT) failed: %w", at, err)
}
