package rpccodec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gpumux/gpumux/internal/payload"
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

// Interceptor makes every call of a connection pass through a codec, nil for none.
// Headers and search attributes pass as they are, as with the SDK's data converters.
func Interceptor(c Codec) grpc.UnaryClientInterceptor {
	var beats beats
	return func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) (err error) {
		if beat, ok := request.(*workflowservice.RecordActivityTaskHeartbeatRequest); ok {
			request, err = beats.encode(ctx, c, beat)
		} else {
			beats.forget(request)
			request, err = encode(ctx, c, request)
		}
		if err != nil {
			return err
		}
		if err := call(ctx, method, request, reply, cc, options...); err != nil {
			return decodeError(ctx, c, err)
		}
		return decode(ctx, c, reply)
	}
}

// encode returns a message with its payloads encoded. The message itself stays, since the
// SDK sends it again after some errors.
func encode(ctx context.Context, c Codec, given any) (any, error) {
	message, ok := given.(proto.Message)
	if !ok || c == nil {
		return given, nil
	}
	message = proto.Clone(message)
	found, err := find(ctx, message)
	if err != nil {
		return nil, err
	}
	// What no data converter made is between the SDK and the server.
	found.payloads = slices.DeleteFunc(found.payloads, func(p *common.Payload) bool { return len(p.GetMetadata()[converter.MetadataEncoding]) == 0 })
	err = inBatches(ctx, found.payloads, c.Encode, func(_ *common.Payload, err error) error {
		return status.Errorf(codes.InvalidArgument, "encode a payload: %v", err)
	})
	if err != nil {
		return nil, err
	}
	return message, found.close()
}

// decode decodes the payloads of a message in place. One that the codec refuses stays as
// it is, with the reason, for its reader to name.
func decode(ctx context.Context, c Codec, given any) error {
	message, ok := given.(proto.Message)
	if !ok {
		return nil
	}
	found, err := find(ctx, message)
	if err != nil {
		return err
	}
	if c != nil {
		err = inBatches(ctx, found.payloads, c.Decode, func(p *common.Payload, err error) error {
			payload.MarkRefused(p, err)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, p := range found.payloads {
		payload.MarkReference(p)
	}
	return found.close()
}

// decodeError decodes the payloads in an error, such as that of a query.
func decodeError(ctx context.Context, c Codec, err error) error {
	answer, ok := status.FromError(err)
	if !ok || len(answer.Proto().GetDetails()) == 0 {
		return err
	}
	told := answer.Proto()
	for _, detail := range told.GetDetails() {
		if decode(ctx, c, detail) != nil {
			return err
		}
	}
	return status.ErrorProto(told)
}

// inBatches replaces payloads by what a codec makes of them. Of a batch that it refuses
// each payload is tried alone, and refused is called with those that are to blame.
func inBatches(ctx context.Context, all []*common.Payload, apply func(context.Context, []*common.Payload) ([]*common.Payload, error),
	refused func(*common.Payload, error) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	running, within := errgroup.WithContext(ctx)
	running.SetLimit(atOnce)
	replace := func(batch []*common.Payload) error {
		made, err := patiently(within, func() ([]*common.Payload, error) { return apply(within, batch) })
		if err == nil && len(made) != len(batch) {
			err = fmt.Errorf("the codec made %d payloads of %d", len(made), len(batch))
		}
		if err != nil {
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
		running.Go(func() error {
			err := replace(batch)
			if !isRefusal(err) {
				return err
			}
			for _, p := range batch {
				err := replace([]*common.Payload{p})
				if isRefusal(err) {
					err = refused(p, err)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return running.Wait()
}

// isRefusal reports whether no further try can help.
func isRefusal(err error) bool { return errors.Is(err, converter.ErrUnableToDecode) }

// batches cuts payloads into requests to a codec.
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
			return nil, status.Error(codes.DeadlineExceeded, last.Error())
		}
	}
}
