// Package config turns a worker's file into pools and tasks, with every mistake at once.
//
// It owns the file's format and defaults, what fits on which device, and the catalog of
// tasks. It writes nothing, starts no program and runs nothing by itself.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/text"
)

// Config is a worker's file: what docs/worker.md describes.
type Config struct {
	// Temporal says where the server is. Default: Temporal's own conventions, see Temporal.
	Temporal Temporal `json:"temporal,omitzero"`
	// Store is a blob URL for large inputs and results. Default: below $XDG_DATA_HOME.
	Store string `json:"store,omitzero"`
	// Pools are the slots of this host: at least one.
	Pools []Pool `json:"pools,omitzero"`
	// Tasks are all that the worker runs, by name; "x/*" is a folder of Python modules.
	Tasks map[string]Task `json:"tasks,omitzero"`
	// Metrics is the host:port where Prometheus finds them; no host is loopback. Default:
	// nothing is served.
	Metrics string `json:"metrics,omitzero"`
	// Backlog has the pools, of this worker or others, whose backlog is among the metrics.
	Backlog []string `json:"backlog,omitzero"`

	// Contact is how long items run on at least while the server does not answer, in maps
	// whose edition this worker tells. contract.TimeoutOf says when others get the chunks of
	// a killed worker. Default 7 s.
	Contact gpumux.Duration `json:"contact,omitzero"`

	// Dir is where relative paths start. Default: the file's folder, or the working folder.
	Dir string `json:"-"`

	file  string         // for messages; empty without a file
	lines map[string]int // the line of each field in the file
}

// Load reads a worker's file. The *Error names every unknown field and every value of the
// wrong shape with its line. Validate says whether they make sense here.
func Load(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		hint := text.When(errors.Is(err, os.ErrNotExist), "; give the worker's file with -f, see docs/worker.md")
		return Config{}, fmt.Errorf("read the worker's file: %w%s", err, hint)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return Config{}, fmt.Errorf("find the folder of %s: %w", path, err)
	}
	c := Config{Dir: dir, file: path, lines: map[string]int{}}
	r := &report{lines: c.lines}
	r.read(data, &c)
	c.Temporal.Connect = c.path(c.Temporal.Connect)
	return c, r.err(path)
}

// Validate says, as an *Error, what cannot work on a host with these devices.
func (c Config) Validate(inventory *gpu.Inventory) error {
	_, _, err := c.Plan(inventory)
	return err
}

// Plan resolves the pools to devices and the tasks to programs, or lists every mistake.
func (c Config) Plan(inventory *gpu.Inventory) ([]Placement, *Catalog, error) {
	r := &report{lines: c.lines}
	_, err := MetricsAddress(c.Metrics)
	r.when(c.Metrics != "" && err != nil, "metrics", "%v", err)
	for i, pool := range c.Backlog {
		err := names.Pool(pool)
		r.when(err != nil, fmt.Sprintf("backlog[%d]", i), "%v", err)
	}
	r.when(len(c.Backlog) > 0 && c.Metrics == "", "backlog", "is a metric; give metrics too, such as 127.0.0.1:9464")
	c.Temporal.check(r)
	_, err = c.StoreURL()
	r.when(err != nil, "store", "%v", err)
	t := time.Duration(c.Contact)
	r.when(t != 0 && (t < contract.MinContact || t > contract.MaxContact), "contact", "%s is outside %s to %s", t, contract.MinContact, contract.MaxContact)
	placements := c.placements(inventory, r)
	tasks := c.catalog(r)
	return placements, tasks, r.err(c.file)
}

// StoreURL is the store with its default.
func (c Config) StoreURL() (string, error) {
	if c.Store != "" {
		if strings.Index(c.Store, "://") < 1 {
			return "", fmt.Errorf("%q is not a URL; write it as file:///var/lib/gpumux or s3://bucket?region=eu-central-1", c.Store)
		}
		return c.Store, nil
	}
	data := os.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(data) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no default: %w; set store, such as file:///var/lib/gpumux", err)
		}
		data = filepath.Join(home, ".local", "share")
	}
	return "file://" + filepath.ToSlash(filepath.Join(data, "gpumux", "store")), nil
}

func (c Config) path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(c.dir(), p)
}

func (c Config) dir() string {
	if c.Dir != "" {
		return c.Dir
	}
	dir, _ := os.Getwd()
	return dir
}

// Temporal says where the server is. The rest comes from Temporal's own conventions:
// TEMPORAL_… variables and the profiles in temporal.toml; last 127.0.0.1:7233, default.
type Temporal struct {
	// Connect is a connection file, which stands for the conventions and may name the store.
	Connect   string `json:"connect,omitzero"`
	Address   string `json:"address,omitzero"`
	Namespace string `json:"namespace,omitzero"`
	// Deployment is the name of the Worker Deployment that the worker is a version of, and
	// Build that version. Default: the worker has no version; Build is the program's.
	Deployment string `json:"deployment,omitzero"`
	Build      string `json:"build,omitzero"`
}

// Version makes the worker one of a deployment. A map stays with the version that
// it began with, since another one's workflow code may decide otherwise.
func (t Temporal) Version(program string) worker.DeploymentOptions {
	if t.Deployment == "" {
		return worker.DeploymentOptions{}
	}
	return worker.DeploymentOptions{
		UseVersioning:             true,
		Version:                   worker.WorkerDeploymentVersion{DeploymentName: t.Deployment, BuildID: cmp.Or(t.Build, program)},
		DefaultVersioningBehavior: workflow.VersioningBehaviorPinned,
	}
}

// check reports what cannot be a version to r.
func (t Temporal) check(r *report) {
	for _, name := range []struct{ field, text string }{{"temporal.deployment", t.Deployment}, {"temporal.build", t.Build}} {
		r.when(len(name.text) > 200 || strings.ContainsAny(name.text, ".:") && name.field == "temporal.deployment", name.field,
			"%.60q has to be of at most 200 bytes without dots and colons", name.text)
	}
	r.when(t.Connect != "" && t.Address != "", "temporal.address", "stands in the connection file too; leave one of them out")
	r.when(t.Build != "" && t.Deployment == "", "temporal.build", "is a version of a deployment; give temporal.deployment too")
}

// MetricsAddress is the address to listen on; without a host it is loopback.
func MetricsAddress(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf("%q is not host:port; write 127.0.0.1:9464", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q: the port has to be a number up to 65535; write 127.0.0.1:9464", text)
	}
	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port), nil
}
