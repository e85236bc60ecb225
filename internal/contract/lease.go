package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
)

// MaxLease is the longest time to live of a lease.
const MaxLease = 24 * time.Hour

// ResidentsFolder is the folder of the store for values on their way from one slot to
// another.
const ResidentsFolder = names.Leases + "/"

// LeaseQueue carries HoldSlot beside the queue of a pool. So calls and leases do not
// stand in each other's way.
func LeaseQueue(queue string) string { return queue + ".lease" }

// Lease is the input of the activity HoldSlot.
type Lease struct {
	Contract Stamp `json:"contract"`
	// ID names the lease, whatever slots it has held. Queue is the task queue that its
	// holder is to serve.
	ID    string `json:"id"`
	Queue string `json:"queue"`
	// Workflow is the ID of the workflow that has the lease, for people.
	Workflow string `json:"workflow"`
	// TTL is how long it may last, from when it has the slot.
	TTL gpumux.Duration `json:"ttl"`
	// Rebuilt says that a handle of an earlier process stands for the resident with its key.
	Rebuilt bool `json:"rebuilt,omitempty"`
}

// SlotCall is the input of the activity CallSlot on the queue of a lease. Exactly one of
// Task, Save, Load, Drop, Open and Close is given.
type SlotCall struct {
	Contract Stamp `json:"contract"`
	// Task is called with Item.
	Task     string          `json:"task,omitempty"`
	Item     json.RawMessage `json:"item,omitempty"`
	Timeout  gpumux.Duration `json:"timeout,omitempty"`
	Attempts int             `json:"attempts,omitempty"`
	// Save writes a resident to Object in the store, Load keeps what is there as a resident,
	// and removes the object.
	Save   *gpumux.Resident `json:"save,omitempty"`
	Load   *gpumux.Resident `json:"load,omitempty"`
	Object string           `json:"object,omitempty"`
	// Drop lets go of residents.
	Drop []gpumux.Resident `json:"drop,omitempty"`
	// Open only asks for the seat. Close ends the lease.
	Open  bool `json:"open,omitempty"`
	Close bool `json:"close,omitempty"`
}

// SlotAnswer is the result of CallSlot.
type SlotAnswer struct {
	Value json.RawMessage `json:"value,omitempty"`
	// Output is the printed text of the call.
	Output string      `json:"output,omitempty"`
	Seat   gpumux.Seat `json:"seat"`
}

// leaseQueue matches the queues of QueueOf.
var leaseQueue = regexp.MustCompile(`^(gpumux\.lease\.[0-9a-z]{1,100})\.[0-9]{1,10}$`)

// LeaseID returns the ID of a lease with a random name.
func LeaseID(random string) string { return "gpumux.lease." + random }

// QueueOf returns the queue of a lease at the nth try to get a slot. No pool has such a
// queue.
func QueueOf(lease string, try int) string { return fmt.Sprintf("%s.%d", lease, try) }

// Validate refuses the queues of others, and a lease without an end.
func (l Lease) Validate() error {
	bad := gpumux.InputError{What: "lease"}
	if found := leaseQueue.FindStringSubmatch(l.Queue); found == nil || found[1] != l.ID {
		bad.Add("queue", "%.200q is no queue of the lease %.200q", l.Queue, l.ID)
	}
	if l.TTL <= 0 || time.Duration(l.TTL) > MaxLease {
		bad.Add("ttl", "%s is outside 0 to %s", l.TTL, MaxLease)
	}
	return bad.Err()
}

// Validate refuses a task that cannot be called, and the objects of others.
func (c SlotCall) Validate() error {
	bad := gpumux.InputError{What: "call"}
	if c.Task != "" {
		if wrong, ok := errors.AsType[*gpumux.InputError](gpumux.MapInput{Task: c.Task, Timeout: c.Timeout, Attempts: c.Attempts, Range: &gpumux.Range{}}.Validate()); ok {
			bad.Problems = append(bad.Problems, wrong.Problems...)
		}
		if !json.Valid(c.Item) {
			bad.Add("item", "is not JSON: %.80q", c.Item)
		}
	}
	if c.Save != nil || c.Load != nil {
		checkResident(&bad, c.Object)
	}
	return bad.Err()
}

// Moving is a resident on its way between two slots.
type Moving struct {
	Contract Stamp `json:"contract"`
	// Object lies in ResidentsFolder of the store.
	Object string `json:"object"`
}

// Validate refuses the objects of others.
func (m Moving) Validate() error {
	bad := gpumux.InputError{What: "move"}
	checkResident(&bad, m.Object)
	return bad.Err()
}

// checkResident refuses an object that is no resident on its way.
func checkResident(bad *gpumux.InputError, object string) {
	if !strings.HasPrefix(object, ResidentsFolder) {
		bad.Add("object", "%.200q is not in the folder %s", object, ResidentsFolder)
	}
}
