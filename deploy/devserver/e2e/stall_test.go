package e2e

import (
	"fmt"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"github.com/gpumux/gpumux/workers"
)

func TestStall(t *testing.T) {
	for i := range 200 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2)
			var began0 time.Time
			t.Cleanup(func() { if d := time.Since(began0); d > 2*time.Second { fmt.Println(t.Name(), "STOP took", d) } })
			b.start(t, workers.Options{StopTimeout: time.Second, Grace: time.Second})
			t.Cleanup(func() { began0 = time.Now() })
			began := time.Now()
			run := b.begin(t, "nap:nap", "cpu", 1, "0", "0.1", "0", "0")
			finish(t, run, 60*time.Second)
			if d := time.Since(began); d > 8*time.Second {
				iter := b.client.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
				for iter.HasNext() {
					e, _ := iter.Next()
					fmt.Println(t.Name(), e.EventId, e.EventTime.AsTime().Format("05.000"), e.EventType, e.GetActivityTaskStartedEventAttributes(), e.GetActivityTaskScheduledEventAttributes().GetActivityId(), e.GetActivityTaskScheduledEventAttributes().GetTaskQueue())
				}
				t.Errorf("slow %s", d)
			}
		})
	}
}
