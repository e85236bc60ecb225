package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/sdk/converter"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/gpumux/gpumux/internal/contract"
)

const (
	// patience is how long a codec that fails is asked again. Temporal gives a workflow's
	// task to another worker after ten seconds.
	patience = 8 * time.Second
	// firstPause and longestPause come between two tries.
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	// batchBytes and batchPayloads bound what a codec gets at a time, so that a server of
	// others takes it; atOnce is how many requests it gets side by side.
	batchBytes    = 256 << 10
	batchPayloads = 100
	atOnce        = 8
)

// intercept makes every call of a connection pass through a codec: one that is away then
// looks as a Temporal server that is, and workflow code never sees its errors. Headers
// and search attributes pass as they are, as with the SDK's data converters.
func intercept(c payloadCodec) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
		encoded, err := encode(ctx, c, request.(proto.Message))
		if err != nil {
			return err
		}
		if err := call(ctx, method, encoded, reply, cc, options...); err != nil {
			return err
		}
		return decode(ctx, c, reply.(proto.Message))
	}
}

// encode returns a message with its payloads encoded. The message itself stays, since the
// SDK sends it again after some errors.
func encode(ctx context.Context, c payloadCodec, message proto.Message) (proto.Message, error) {
	message = proto.Clone(message)
	return message, change(ctx, message, func(payloads []*common.Payload) error {
		// What no data converter made is between the SDK and the server.
		payloads = slices.DeleteFunc(payloads, func(p *common.Payload) bool { return len(p.GetMetadata()[converter.MetadataEncoding]) == 0 })
		return inBatches(ctx, payloads, c, converter.PayloadCodec.Encode, func(_ *common.Payload, err error) error {
			return status.Errorf(codes.InvalidArgument, "encode a payload: %v", err)
		})
	})
}

// decode decodes the payloads of a message in place. One that the codec refuses stays as
// it is, with the reason, for its reader to name.
func decode(ctx context.Context, c payloadCodec, message proto.Message) error {
	return change(ctx, message, func(payloads []*common.Payload) error {
		return inBatches(ctx, payloads, c, converter.PayloadCodec.Decode, func(p *common.Payload, err error) error {
			contract.MarkRefused(p, err)
			return nil
		})
	})
}

// change calls f with the payloads of a message that data converters make, which it
// changes in place. Those of a message in the message come first, by themselves.
func change(ctx context.Context, message proto.Message, f func([]*common.Payload) error) error {
	var all []*common.Payload
	err := proxy.VisitPayloads(ctx, message, proxy.VisitPayloadsOptions{
		SkipSearchAttributes: true,
		Visitor: func(at *proxy.VisitPayloadsContext, payloads []*common.Payload) ([]*common.Payload, error) {
			if _, header := at.Parent.(*common.Header); !header {
				all = append(all, payloads...)
			}
			return payloads, nil
		},
		WellKnownAnyVisitor: func(_ *proxy.VisitPayloadsContext, packed *anypb.Any) error {
			inner, err := packed.UnmarshalNew()
			if err != nil {
				return nil // of a later server: nothing of ours is in it
			}
			if err := change(ctx, inner, f); err != nil {
				return err
			}
			return packed.MarshalFrom(inner)
		},
	})
	if err != nil {
		return err
	}
	return f(all)
}

// inBatches replaces payloads by what a codec makes of them, or calls refused with them.
func inBatches(ctx context.Context, all []*common.Payload, codec payloadCodec,
	apply func(converter.PayloadCodec, []*common.Payload) ([]*common.Payload, error), refused func(*common.Payload, error) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	running, ctx := errgroup.WithContext(ctx)
	running.SetLimit(atOnce)
	var replace func(batch []*common.Payload) error
	replace = func(batch []*common.Payload) error {
		made, err := patiently(ctx, func() ([]*common.Payload, error) { return apply(codec(ctx), batch) })
		switch {
		case isRefusal(err) && len(batch) == 1:
			return refused(batch[0], err)
		case isRefusal(err): // of which it may take the others
			for _, p := range batch {
				if err := replace([]*common.Payload{p}); err != nil {
					return err
				}
			}
			return nil
		case err == nil && len(made) != len(batch):
			return fmt.Errorf("the codec made %d payloads of %d", len(made), len(batch))
		case err != nil:
			return err
		}
		for i, p := range batch {
			if p != made[i] {
				p.Metadata, p.Data, p.ExternalPayloads = made[i].GetMetadata(), made[i].GetData(), made[i].GetExternalPayloads()
			}
		}
		return nil
	}
	for _, batch := range batches(all) {
		running.Go(func() error { return replace(batch) })
	}
	return running.Wait()
}

// isRefusal reports whether no further try can help.
func isRefusal(err error) bool { return errors.Is(err, converter.ErrUnableToDecode) }

func batches(all []*common.Payload) (cut [][]*common.Payload) {
	size := 0
	for _, p := range all {
		size += len(p.GetData())
		if last := len(cut) - 1; last >= 0 && size <= batchBytes && len(cut[last]) < batchPayloads {
			cut[last] = append(cut[last], p)
			continue
		}
		cut, size = append(cut, []*common.Payload{p}), len(p.GetData())
	}
	return cut
}

// patiently asks a codec until it answers or refuses, or ctx ends. Its error is that of a
// server that is away, and the one after which the SDK does not hide why.
func patiently(ctx context.Context, ask func() ([]*common.Payload, error)) ([]*common.Payload, error) {
	var last error
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		made, err := ask()
		if err == nil || isRefusal(err) {
			return made, err
		}
		if last == nil || ctx.Err() == nil { // the last one may only say that time was up
			last = err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, status.Errorf(codes.DeadlineExceeded, "the codec (the program's, or of TEMPORAL_CODEC_ENDPOINT) failed: %v", last)
		}
	}
}

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
