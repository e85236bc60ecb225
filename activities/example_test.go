package activities_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"

	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/activities"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/internal/store"
)

// squares runs items in this process. A slot would run them in a process of its own.
type squares struct{}

func (squares) Run(_ context.Context, call activities.Call, work calls.Work) error {
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		var n int
		result := gpumux.Result{Index: item.Index}
		if err := json.Unmarshal(item.Value, &n); err != nil {
			result.Fault = &gpumux.Fault{Kind: gpumux.FaultTaskError, Op: "run", Message: err.Error()}
		} else {
			result.Value = fmt.Append(nil, n*n)
		}
		work.Done(activities.Done{Result: result})
	}
	return nil
}

// A pool's activities know slots only as a Runner. For another kind of slot, write
// another Runner.
func ExampleRunner() {
	var runner activities.Runner = squares{}
	work := calls.Single{Value: []byte("3")}
	if err := runner.Run(context.Background(), activities.Call{Task: "square"}, &work); err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(work.Result.Value))
	// Output: 9
}

// A chunk is some items of a map. Its results go to the store. Few results come back in
// the answer.
func ExamplePool_Register() {
	s, err := store.Open(context.Background(), "mem://", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	pool := &activities.Pool{Runner: squares{}, Store: s, Recorders: record.New(s)}

	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	pool.Register(env)
	answer, err := env.ExecuteActivity(contract.RunChunk, contract.Chunk{
		Map: "squares", Task: "square",
		Work: contract.Whole(3), Items: []json.RawMessage{[]byte("4"), []byte(`"x"`), []byte("6")},
	})
	if err != nil {
		log.Fatal(err)
	}
	var result contract.ChunkResult
	if err := answer.Get(&result); err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Succeeded, "succeeded,", result.Failed, "failed")
	for _, r := range result.Results {
		fmt.Println(r.Index, string(r.Value), r.Fault != nil)
	}
	// Output:
	// 2 succeeded, 1 failed
	// 0 16 false
	// 1  true
	// 2 36 false
}
