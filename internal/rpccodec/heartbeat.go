package rpccodec

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// beatPatience is how long a heartbeat waits for the codec. Several have to reach the
// server within its timeout.
const beatPatience = 2 * time.Second

// beats sends heartbeats while the codec is away, with the details that the server has
// already: what runs goes on.
type beats struct {
	last sync.Map // the encoded details of the last heartbeat, by the token of its activity
}

// encode encodes the details of a heartbeat, or takes those of the one before.
func (b *beats) encode(ctx context.Context, c Codec, beat *workflowservice.RecordActivityTaskHeartbeatRequest) (any, error) {
	if c == nil {
		return beat, nil
	}
	limited, cancel := context.WithTimeout(ctx, beatPatience)
	defer cancel()
	encoded, err := encode(limited, c, beat)
	token := string(beat.GetTaskToken())
	if err == nil {
		b.last.Store(token, encoded.(*workflowservice.RecordActivityTaskHeartbeatRequest).GetDetails())
		return encoded, nil
	}
	before, ok := b.last.Load(token)
	if !ok || status.Code(err) != codes.DeadlineExceeded {
		return nil, err
	}
	again := proto.Clone(beat).(*workflowservice.RecordActivityTaskHeartbeatRequest)
	again.Details = before.(*common.Payloads)
	return again, nil
}

// forget drops the details of an activity that ends with this request.
func (b *beats) forget(request any) {
	if end, ok := request.(interface{ GetTaskToken() []byte }); ok {
		b.last.Delete(string(end.GetTaskToken()))
	}
}
