package fleet

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/nexus/v1"
	"go.temporal.io/api/protocol/v1"
	"go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/update/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/test/codectest"
)

const (
	start = workflowservice.WorkflowService_StartWorkflowExecution_FullMethodName
	poll  = workflowservice.WorkflowService_PollActivityTaskQueue_FullMethodName
)

var hiding codectest.Flipped

func localHiding(context.Context) converter.PayloadCodec { return hiding }

// server serves a codec. Its first answers, so many, are those of wrong.
func server(t *testing.T, times int64, wrong http.HandlerFunc) (remote payloadCodec, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	right := converter.NewPayloadCodecHTTPHandler(hiding)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) <= times {
			wrong(w, r)
			return
		}
		right.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return remoteCodec(s.URL+"/", "", "default"), asked
}

func plain(t testing.TB, value any) *common.Payload {
	t.Helper()
	p, err := converter.GetDefaultDataConverter().ToPayload(value)
	require.NoError(t, err)
	return p
}

func hidden(t testing.TB, value any) *common.Payload {
	t.Helper()
	p, err := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), hiding).ToPayload(value)
	require.NoError(t, err)
	return p
}

// call makes a call through a codec. The server sees sent and gives answer.
func call(ctx context.Context, c payloadCodec, method string, request, answer proto.Message) (sent, got proto.Message, err error) {
	got = answer.ProtoReflect().New().Interface()
	err = intercept(c)(ctx, method, request, got, nil, func(_ context.Context, _ string, request, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		sent = request.(proto.Message)
		proto.Merge(reply.(proto.Message), answer)
		return nil
	})
	return sent, got, err
}

// What data converters make is encoded, and nothing else. The request stays as it was,
// since the SDK may send it again.
func TestInterceptor_WhatItEncodes(t *testing.T) {
	t.Parallel()
	request := &workflowservice.StartWorkflowExecutionRequest{
		Input:            &common.Payloads{Payloads: []*common.Payload{plain(t, "marker"), plain(t, "marker")}},
		Memo:             &common.Memo{Fields: map[string]*common.Payload{"m": plain(t, "marker")}},
		UserMetadata:     &sdk.UserMetadata{Summary: plain(t, "marker")},
		Header:           &common.Header{Fields: map[string]*common.Payload{"trace": plain(t, "open")}},
		SearchAttributes: &common.SearchAttributes{IndexedFields: map[string]*common.Payload{"Kind": plain(t, "open")}},
	}
	before := proto.Clone(request)
	sent, _, err := call(t.Context(), localHiding, start, request, &workflowservice.StartWorkflowExecutionResponse{})
	require.NoError(t, err)
	require.True(t, proto.Equal(before, request))
	require.NotContains(t, fmt.Sprint(sent), "marker")
	require.Equal(t, 2, strings.Count(fmt.Sprint(sent), `\"open\"`))
	require.Equal(t, 4, strings.Count(fmt.Sprint(sent), `"`+codectest.Encoding+`"`))

	poll := &workflowservice.PollWorkflowTaskQueueResponse{Messages: []*protocol.Message{{}}}
	poll.Messages[0].Body, err = anypb.New(&update.Request{Input: &update.Input{Args: &common.Payloads{Payloads: []*common.Payload{hidden(t, "marker")}}}})
	require.NoError(t, err)
	_, got, err := call(t.Context(), localHiding, start, &workflowservice.PollWorkflowTaskQueueRequest{}, poll)
	require.NoError(t, err)
	var body update.Request
	require.NoError(t, got.(*workflowservice.PollWorkflowTaskQueueResponse).Messages[0].Body.UnmarshalTo(&body))
	require.True(t, proto.Equal(plain(t, "marker"), body.GetInput().GetArgs().GetPayloads()[0]), "of an update")

	// The answer to a command of the server, as the SDK makes it.
	command := &workflowservice.RespondNexusTaskCompletedRequest{Response: &nexus.Response{Variant: &nexus.Response_StartOperation{
		StartOperation: &nexus.StartOperationResponse{Variant: &nexus.StartOperationResponse_SyncSuccess{
			SyncSuccess: &nexus.StartOperationResponse_Sync{Payload: &common.Payload{Data: []byte("done")}}}}}}}
	sent, _, err = call(t.Context(), localHiding, start, command, &workflowservice.RespondNexusTaskCompletedResponse{})
	require.NoError(t, err)
	require.True(t, proto.Equal(command, sent))
}

// A codec server that fails for a while is asked again, and the call succeeds.
func TestInterceptor_OutlastsAnOutage(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]http.HandlerFunc{
		"503": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
		},
		"not found":    http.NotFound,
		"unauthorized": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"cut off":      func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"nonsense":     func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"too few":      func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"payloads":[]}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			remote, asked := server(t, 3, wrong)
			request := &workflowservice.StartWorkflowExecutionRequest{Input: &common.Payloads{Payloads: []*common.Payload{plain(t, "marker")}}}
			sent, _, err := call(t.Context(), remote, start, request, &workflowservice.StartWorkflowExecutionResponse{})
			require.NoError(t, err)
			require.NotContains(t, fmt.Sprint(sent), "marker")
			require.EqualValues(t, 4, asked.Load())
		})
	}
}

// A codec server that stays away is an error with the address that has to answer. Workers
// take it for a server that is away.
func TestInterceptor_SaysWhoIsAway(t *testing.T) {
	t.Parallel()
	remote, asked := server(t, 1<<40, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "out of order", http.StatusServiceUnavailable)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	answer := &workflowservice.PollActivityTaskQueueResponse{Input: &common.Payloads{Payloads: []*common.Payload{hidden(t, "marker")}}}
	_, _, err := call(ctx, remote, poll, &workflowservice.PollActivityTaskQueueRequest{}, answer)
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	require.Greater(t, asked.Load(), int64(1))
	for _, text := range []string{"http://127.0.0.1:", "TEMPORAL_CODEC_ENDPOINT", "503 Service Unavailable: out of order"} {
		require.ErrorContains(t, err, text)
	}
	remote = remoteCodec("http://127.0.0.1:1", "", "default")
	_, _, err = call(ctx, remote, poll, &workflowservice.PollActivityTaskQueueRequest{}, answer)
	require.ErrorContains(t, err, "of TEMPORAL_CODEC_ENDPOINT) failed: Post \"http://127.0.0.1:1/decode\": ")
}

// A payload that nobody can decode is left to its reader, with the reason. It keeps no
// other payload from being read, and no call from succeeding.
func TestInterceptor_ARefusedPayload(t *testing.T) {
	t.Parallel()
	remote, _ := server(t, 0, nil)
	broken := hidden(t, "broken")
	broken.Data[len(broken.Data)/2] ^= 1
	for name, c := range map[string]payloadCodec{"here": localHiding, "remote": remote} {
		answer := &workflowservice.PollActivityTaskQueueResponse{Input: &common.Payloads{Payloads: []*common.Payload{
			hidden(t, "whole"), proto.Clone(broken).(*common.Payload), plain(t, "open")}}}
		_, got, err := call(t.Context(), c, poll, &workflowservice.PollActivityTaskQueueRequest{}, answer)
		require.NoError(t, err, name)
		all := got.(*workflowservice.PollActivityTaskQueueResponse).GetInput().GetPayloads()
		require.Equal(t, `"whole"`, string(all[0].GetData()), name)
		require.Equal(t, `"open"`, string(all[2].GetData()), name)
		err = contract.DecodePayload(converter.NewRawValue(all[1]), new(contract.PartsInput))
		require.ErrorContains(t, err, "which the codec does not read: ", name)
		require.ErrorContains(t, err, "it was changed", name)
		require.ErrorIs(t, converter.GetDefaultDataConverter().FromPayload(all[1], new(string)), converter.ErrEncodingIsNotSupported, name)
	}
	refuses, _ := server(t, 1<<40, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) })
	request := &workflowservice.StartWorkflowExecutionRequest{Input: &common.Payloads{Payloads: []*common.Payload{plain(t, "marker")}}}
	_, _, err := call(t.Context(), refuses, start, request, &workflowservice.StartWorkflowExecutionResponse{})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

// A codec server gets few requests, and none that is larger than others take.
func TestInterceptor_Batches(t *testing.T) {
	t.Parallel()
	remote, asked := server(t, 0, nil)
	request := &workflowservice.StartWorkflowExecutionRequest{Input: &common.Payloads{}}
	for range 250 {
		request.Input.Payloads = append(request.Input.Payloads, plain(t, "small"))
	}
	for range 2 {
		request.Input.Payloads = append(request.Input.Payloads, plain(t, strings.Repeat("large", 50_000)))
	}
	sent, _, err := call(t.Context(), remote, start, request, &workflowservice.StartWorkflowExecutionResponse{})
	require.NoError(t, err)
	require.EqualValues(t, 4, asked.Load())
	for i, p := range sent.(*workflowservice.StartWorkflowExecutionRequest).GetInput().GetPayloads() {
		decoded, err := hiding.Decode([]*common.Payload{p})
		require.NoError(t, err)
		require.True(t, bytes.Equal(request.GetInput().GetPayloads()[i].GetData(), decoded[0].GetData()))
	}
}
