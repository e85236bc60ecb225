package fleet

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

// beatPatience is for the codec: several heartbeats have to come within their timeout.
const beatPatience = 2 * time.Second

// heartbeats are the encoded details of the last heartbeat by the token of its activity.
// While the codec is away they are sent again: what runs goes on.
type heartbeats struct{ sync.Map }

// encode encodes a request. A heartbeat gets the details of the one before where the
// codec is away; the request that ends an activity drops them.
func (h *heartbeats) encode(ctx context.Context, c payloadCodec, request any) (any, error) {
	beat, ok := request.(*workflowservice.RecordActivityTaskHeartbeatRequest)
	if !ok {
		if end, ok := request.(interface{ GetTaskToken() []byte }); ok {
			h.Delete(string(end.GetTaskToken()))
		}
		return encode(ctx, c, request)
	}
	limited, cancel := context.WithTimeout(ctx, beatPatience)
	defer cancel()
	encoded, err := encode(limited, c, beat)
	token := string(beat.GetTaskToken())
	if err == nil {
		h.Store(token, encoded.(*workflowservice.RecordActivityTaskHeartbeatRequest).GetDetails())
		return encoded, nil
	}
	before, ok := h.Load(token)
	if !ok || status.Code(err) != codes.DeadlineExceeded {
		return nil, err
	}
	repeated := proto.Clone(beat).(*workflowservice.RecordActivityTaskHeartbeatRequest)
	repeated.Details = before.(*common.Payloads)
	return repeated, nil
}
