package starter

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/gpumux/gpumux/internal/contract"
)

// NotMapError says that an ID is that of a workflow of another type.
type NotMapError struct{ ID, Type string }

// Error says what to do.
func (e *NotMapError) Error() string {
	return fmt.Sprintf("%q is a workflow of type %s, no map; give another ID", e.ID, e.Type)
}

// Leasing is a workflow of somebody's own and the leases that it has.
type Leasing struct {
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	Status  Status    `json:"status"`
	Started time.Time `json:"started"`
	Leases  []Lease   `json:"leases"`
}

// Lease is a slot that a workflow holds, or waits for.
type Lease struct {
	// Worker, Slot and Device are empty while it waits.
	Worker string `json:"worker,omitempty"`
	Slot   string `json:"slot,omitempty"`
	Device string `json:"device,omitempty"`
	// Since is when it got the slot, Until when it ends at the latest.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Calls is how many have ended, Task the one that runs.
	Calls int    `json:"calls"`
	Task  string `json:"task,omitempty"`
	// Residents is how many values its process keeps, ResidentBytes the bytes of their arrays.
	Residents     int   `json:"residents"`
	ResidentBytes int64 `json:"residentBytes"`
}

// Leases tells which leases a workflow has. What workers tell of them is up to some seconds old.
func (s *Starter) Leases(ctx context.Context, id string) (*Leasing, error) {
	answer, err := s.Client.DescribeWorkflowExecution(ctx, id, "")
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil, &NotFoundError{ID: id}
	}
	if err != nil {
		return nil, fmt.Errorf("look up workflow %s: %w", id, err)
	}
	info := answer.GetWorkflowExecutionInfo()
	l := &Leasing{ID: id, Type: info.GetType().GetName(), Status: statuses[info.GetStatus()], Started: info.GetStartTime().AsTime(), Leases: []Lease{}}
	for _, a := range answer.GetPendingActivities() {
		if a.GetActivityType().GetName() != contract.HoldSlot {
			continue
		}
		var at contract.Seat
		if a.GetState() != enumspb.PENDING_ACTIVITY_STATE_SCHEDULED {
			// Without the key of an encrypted heartbeat the rest still counts.
			err := s.converter().FromPayloads(a.GetHeartbeatDetails(), &at)
			if err != nil || at.Slot != "" { // else it waits at the worker for one
				at.Worker = a.GetLastWorkerIdentity()
			}
		}
		l.Leases = append(l.Leases, Lease{
			Worker: at.Worker, Slot: at.Slot, Device: at.Device, Since: at.Since, Until: at.Until, Calls: at.Calls, Task: at.Task,
			Residents: at.Residents, ResidentBytes: at.ResidentBytes,
		})
	}
	return l, nil
}
