package rpccodec

import (
	"context"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/proxy"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// found are the payloads of a message, to be changed in place.
type found struct {
	payloads []*common.Payload
	// packed are messages in messages, inner ones first.
	packed []packed
}

// packed is a message as bytes, and what it was read to.
type packed struct {
	as     *anypb.Any
	opened proto.Message
}

// find returns the payloads of a message that data converters make.
func find(ctx context.Context, message proto.Message) (f found, err error) {
	var options proxy.VisitPayloadsOptions
	options = proxy.VisitPayloadsOptions{
		SkipSearchAttributes: true,
		Visitor: func(at *proxy.VisitPayloadsContext, payloads []*common.Payload) ([]*common.Payload, error) {
			if _, header := at.Parent.(*common.Header); !header {
				f.payloads = append(f.payloads, payloads...)
			}
			return payloads, nil
		},
		WellKnownAnyVisitor: func(_ *proxy.VisitPayloadsContext, as *anypb.Any) error {
			opened, err := as.UnmarshalNew()
			if err != nil {
				return nil // of a later server: nothing of ours is in it
			}
			if err := proxy.VisitPayloads(ctx, opened, options); err != nil {
				return err
			}
			f.packed = append(f.packed, packed{as, opened})
			return nil
		},
	}
	return f, proxy.VisitPayloads(ctx, message, options)
}

// close packs the messages again.
func (f found) close() error {
	for _, p := range f.packed {
		if err := p.as.MarshalFrom(p.opened); err != nil {
			return err
		}
	}
	return nil
}
