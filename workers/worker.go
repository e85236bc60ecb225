package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/activities"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/health"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/memory"
	"github.com/gpumux/gpumux/internal/notice"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/internal/sharing"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/template"
	"github.com/gpumux/gpumux/workers/config"
)

// Options adjust a Worker; the zero value serves a program that does other things, too.
type Options struct {
	// Client is an open connection, which stays open. Default: dialled by Config.Temporal.
	Client client.Client
	// Codec transforms payloads, at the connection and so without a serialization context; a
	// Client must have it already, by codec.Apply. Default: the server that
	// TEMPORAL_CODEC_ENDPOINT names, else none.
	Codec converter.PayloadCodec
	// Alone is for a worker without Temporal and store, which runs RunDirect alone.
	Alone bool
	// Dedicated lets the worker change its program, which is to do nothing else, on Linux:
	// it adopts orphans of tasks and hides its memory from them. docs/services.md says what
	// is lost without. Default false.
	Dedicated bool
	// Inventory is the host's devices, which the worker does not close. Default: gpu.Open,
	// which takes a minute where the driver hangs.
	Inventory *gpu.Inventory
	// Version is the worker's own. Default "dev".
	Version string
	// StopTimeout is how long running chunks may go on after Stop. Default 30 s.
	StopTimeout time.Duration
	// Grace is the time between TERM and KILL of a task process. Default 5 s.
	Grace time.Duration
	// Runtime is the folder for the runtimes. Default: gpumux in the user's cache folder.
	Runtime string
	// Log gets what the worker writes. Default: nothing does.
	Log *zap.Logger
	// Notice gets what changes what users of the worker's maps get, each once, in place of
	// Log. Default: Log has it.
	Notice func(text string)
}

// Worker serves the pools of one host. Start and Stop may be called from any goroutine.
type Worker struct {
	o          Options
	log        *zap.Logger
	notices    *notice.List
	host       string
	identity   string
	config     config.Config
	storeURL   string
	placements []config.Placement
	tasks      *config.Catalog
	inventory  *gpu.Inventory
	failed     chan error
	serves     atomic.Bool     // all queues
	life       context.Context // ends when Stop begins
	end        context.CancelFunc
	halt       context.Context // ends when running calls must end
	giveUp     context.CancelCauseFunc

	starting sync.Mutex // held through Start and by shutdown
	started  bool
	slack    time.Duration // what Stop waits for a process or a driver beyond the grace
	stopOnce sync.Once
	stopped  chan struct{}
	stopErr  error

	// Made by Start, in this order.
	scratch   string // a folder to remove
	args      argFiles
	home      string // HOME of tasks
	rRuntime  string // main.R
	metrics   *metrics
	meter     *meter
	store     *store.Store
	recorders *record.Recorders
	ledger    *pool.Ledger
	pools     []*pool.Pool
	direct    map[string]*activities.Pool // by pool
	memory    *memory.Enforcer
	templates *template.Set
	sharing   *sharing.Host
	shares    map[shareKey]sharing.Share
	suppliers []*supplier
	guarding  context.CancelFunc
	guards    sync.WaitGroup
	client    client.Client
	namespace string // the client's; empty for the default
	contact   *contact
	asking    asking
	serving   []worker.Worker
}

// New checks the configuration against this host, lists every mistake, starts nothing.
func New(c config.Config, o Options) (*Worker, error) {
	o.StopTimeout = cmp.Or(o.StopTimeout, 30*time.Second)
	o.Grace = cmp.Or(o.Grace, 5*time.Second)
	o.Version = cmp.Or(o.Version, "dev")
	if o.Dedicated {
		process.Dedicate()
	}
	notices := &notice.List{Say: o.Notice}
	w := &Worker{o: o, log: cmp.Or(o.Log, zap.NewNop()), notices: notices, config: c, inventory: o.Inventory, failed: make(chan error, 1), stopped: make(chan struct{}),
		slack: 10 * time.Second}
	w.life, w.end = context.WithCancel(context.Background())
	w.halt, w.giveUp = context.WithCancelCause(context.Background())
	var err error
	if w.host, err = os.Hostname(); err != nil {
		return nil, fmt.Errorf("find this host's name: %w", err)
	}
	w.identity = contract.Identity(w.host, os.Getpid())
	if w.inventory == nil {
		if w.inventory, err = gpu.Open(context.Background(), gpu.Options{}); err != nil {
			return nil, fmt.Errorf("list this host's devices: %w", err)
		}
	}
	if w.placements, w.tasks, err = c.Plan(w.inventory); err == nil {
		w.storeURL, err = c.StoreURL()
	}
	if err != nil {
		return nil, errors.Join(err, w.closeInventory())
	}
	return w, nil
}

// Start returns when the worker asks for work. A failed start leaves nothing behind and
// cannot be tried again. After success it does nothing.
func (w *Worker) Start(ctx context.Context) error {
	w.starting.Lock()
	if w.life.Err() != nil {
		w.starting.Unlock()
		return errors.New("the worker was stopped; make a new one")
	}
	if w.started {
		w.starting.Unlock()
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.life, cancel)()
	err := w.start(ctx)
	w.started = err == nil
	w.starting.Unlock()
	if err != nil {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		return errors.Join(err, w.Stop(now))
	}
	return nil
}

func (w *Worker) start(ctx context.Context) error {
	runtime, err := w.installRuntimes()
	if err != nil {
		return err
	}
	if err := process.Sweep(); err != nil {
		return err
	}
	w.metrics = newMetrics(w.log, w.o.Version, w.starts, w.health)
	w.meter = &meter{life: w.halt, load: w.inventory.Load, devices: map[string]*metered{}}
	if err := w.connect(ctx); err != nil {
		return err
	}
	if err := w.serveMetrics(); err != nil {
		return err
	}
	enforcer, err := memory.New(w.placements, w.inventory, w.notices, w.log)
	if err != nil {
		return err
	}
	guarding, cancel := context.WithCancel(context.Background())
	w.guarding, w.memory = cancel, enforcer
	w.guards.Go(func() { w.memory.Run(guarding) })
	for _, text := range w.inventory.Warnings() {
		w.notices.Warn(w.log, text)
	}
	w.contact = newContact(uptime, w.log)
	w.contact.Client = w.client
	if err := w.shareDevices(ctx); err != nil {
		return err
	}
	queues := w.openPools(ctx, guarding, runtime)
	w.guards.Go(func() { w.watchStarts(guarding) })
	w.memory.Report() // the probes show what the driver tells
	if w.o.Alone {
		return ctx.Err()
	}
	if err := w.serve(queues); err != nil {
		return err
	}
	w.serves.Store(true)
	w.guards.Go(func() { w.followBacklog(guarding) })
	w.guards.Go(func() { w.tellVersion(guarding) })
	w.log.Info("worker started", zap.String("identity", w.identity), zap.String("store", w.storeURL), zap.Strings("tasks", w.tasks.Names()))
	if os.Geteuid() == 0 {
		w.log.Info("tasks run as root and may do all that this worker may; run the worker as a user of its own")
	}
	return ctx.Err()
}

// openPools makes the slots of all pools, probes their devices and returns their queues.
// Until guarding ends, it watches the devices and adapts the numbers of slots.
func (w *Worker) openPools(ctx, guarding context.Context, runtime string) (queues []queue) {
	w.templates, w.ledger, w.direct = template.NewSet(w.log), pool.NewLedger(), map[string]*activities.Pool{}
	guard := health.New(w.inventory.Status, w.tryDevice, w.log)
	guard.Counted, guard.Others, guard.Notices = w.metrics.Cordoned, w.memory.Others, w.notices
	w.templates.Notices = w.notices
	for _, p := range w.placements {
		opened := w.openPool(p, runtime)
		guard.Add(opened, p.Groups)
		var size *sizing
		if p.Auto() {
			size = newSizing(opened, p, w.inventory.Status, w.log)
			w.guards.Go(func() { size.Run(guarding) })
		}
		queues = append(queues, w.poolQueues(p, opened, guard, size)...)
	}
	guard.Begin(ctx)
	w.guards.Go(func() { guard.Run(guarding) })
	return queues
}

func (w *Worker) serve(queues []queue) error {
	for _, q := range append(queues, w.lightQueue(), w.ownQueue()) {
		served := worker.New(w.client, q.name, q.options)
		q.register(served)
		if err := served.Start(); err != nil {
			return fmt.Errorf("serve queue %s: %w; check that the namespace exists and may be used", q.name, err)
		}
		w.serving = append(w.serving, served)
	}
	return nil
}

// openPool makes a pool's slots. A task process starts with the first call.
func (w *Worker) openPool(p config.Placement, runtime string) *pool.Pool {
	var seats []*pool.Seat
	for _, g := range p.Groups {
		cores := w.near(p, g, process.Cores())
		if len(cores) > 0 {
			w.log.Info("slots run on the processors next to their GPUs", zap.String("pool", p.Name), zap.String("device", g.Name), zap.Ints("cores", cores))
		}
		for range p.MaxSlots {
			seats = append(seats, w.newSeat(fmt.Sprintf("%s/%d", p.Name, len(seats)), p, g, cores, runtime))
		}
	}
	opened := w.ledger.New(p.Name, seats)
	opened.Log = w.log
	w.pools = append(w.pools, opened)
	w.metrics.Offer(opened)
	return opened
}

func (w *Worker) newSeat(name string, p config.Placement, g config.Group, cores []int, runtime string) *pool.Seat {
	alone, share := p.Pool, w.shares[shareKey{p.Name, g.Name}]
	alone.Memory, alone.Slots = p.Whole(g, w.placements), 1
	limits := func(whole bool) (map[string]string, gpumux.Size) {
		budget := p.Pool
		if whole {
			budget = alone
		}
		room := memory.Room(budget, g)
		seat := launch.Slot{Beside: w.abreast(g, whole), Shared: budget.Memory > 0 || budget.Slots > 1 || budget.Auto(), Room: room,
			Sharing: share.Env(budget.Memory, whole)}
		if g.Devices[0].Kind != gpu.KindCPU {
			seat.Group = g.Name
			seat.Smallest = slices.MinFunc(g.Devices, func(a, b gpu.Device) int { return cmp.Compare(a.Memory, b.Memory) }).Memory
		}
		return seat.Variables(), room
	}
	env, room := limits(false)
	o := slot.Options{
		Name: name, Host: w.host, Device: g.Name, Memory: p.Memory, Room: room, Mode: p.Mode, Env: env,
		Cores: cores, Runtime: runtime, RRuntime: w.rRuntime, Home: w.home, Grace: w.o.Grace,
		Log: w.log.With(zap.String("pool", p.Name)), Notices: w.notices, MPS: share.MPS(),
	}
	w.memory.Confine(&o, p.Name)
	runs := slot.NewSharing(w.templates, o)
	share.Join(runs)
	var devices []string
	for _, d := range g.Devices {
		devices = append(devices, d.UUID)
	}
	return &pool.Seat{Slot: runs, Name: name, Group: g.Name, Devices: devices,
		Memory: alone.Memory, Limits: func() (map[string]string, gpumux.Size) { return limits(true) }}
}

// near are those of the usable processors that are next to the slot's GPUs. There are
// none, which stands for all, where one is next to no GPU of the worker, so idle.
func (w *Worker) near(p config.Placement, g config.Group, usable []int) (cores []int) {
	its := map[int]bool{} // of those next to any GPU
	for _, d := range config.Devices(w.placements) {
		for _, core := range d.Near() {
			its[core] = its[core] || slices.Contains(g.Devices, d)
		}
	}
	for _, core := range usable {
		if _, busy := its[core]; !busy || p.Cores == "all" {
			return nil
		}
		if its[core] {
			cores = append(cores, core)
		}
	}
	if len(cores) == len(usable) {
		return nil
	}
	return cores
}

// abreast is how many slots share the processors with one of the group, itself included.
// To have its devices whole, a slot keeps the others on them waiting.
func (w *Worker) abreast(g config.Group, whole bool) int {
	slots := 0
	for _, p := range w.placements {
		for _, each := range p.Groups {
			if !whole || !slices.ContainsFunc(each.Devices, func(d gpu.Device) bool { return slices.Contains(g.Devices, d) }) {
				slots += p.MaxSlots
			}
		}
	}
	if whole {
		slots++
	}
	return slots
}

func (w *Worker) serveMetrics() error {
	if w.config.Metrics == "" {
		return nil
	}
	address, _ := config.MetricsAddress(w.config.Metrics) // the plan was made with it
	_, err := w.metrics.Serve(address, config.Devices(w.placements), w.inventory)
	return err
}

// Failed delivers the error that ended the serving of a queue. Stop the worker then.
func (w *Worker) Failed() <-chan error { return w.failed }
