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

// Lease is a slot that a workflow holds. One that it waits for has neither worker nor slot.
type Lease = contract.Seat

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
		var at Lease
		if a.GetState() != enumspb.PENDING_ACTIVITY_STATE_SCHEDULED {
			// Without the key of an encrypted heartbeat the rest still counts.
			err := s.converter().FromPayloads(a.GetHeartbeatDetails(), &at)
			if err != nil || at.Slot != "" { // else it waits at the worker for one
				at.Worker = a.GetLastWorkerIdentity()
			}
		}
		l.Leases = append(l.Leases, at)
	}
	return l, nil
}
