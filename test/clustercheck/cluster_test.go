//go:build linux

package clustercheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// c is the cluster that all parts share.
var c = &cluster{processes: map[string]*process{}}

type cluster struct {
	// folder has the programs, the report and the logs; dir is the data of this run.
	folder, dir string
	processes   map[string]*process
	// order is that of their first start; the first base ones are the cluster itself.
	order []*process
	base  int
}

// top is the root of the repository.
const top = "../.."

// at is a loopback address of this run's own, so that every process has its usual ports.
func at(host int) string { return fmt.Sprintf("127.77.%d.%d", os.Getpid()%254+1, host) }

// Addresses of the cluster's hosts; workers have those from 20 on.
const (
	atFrontend = iota + 1
	atHistory
	atMatching
	atWorker
	atHistory2
	atMatching2
	atDatabase
	atStore
	atWorkers = 20
)

func (c *cluster) program(name string) string { return filepath.Join(c.folder, "bin", name) }

// add makes a process known, which ends with the cluster.
func (c *cluster) add(p *process) *process {
	c.processes[p.name] = p
	c.order = append(c.order, p)
	return p
}

// start starts everything but workers.
func (c *cluster) start() (err error) {
	logs := filepath.Join(c.folder, "logs")
	if err := errors.Join(os.RemoveAll(logs), os.Mkdir(logs, 0o755)); err != nil {
		return err
	}
	if c.dir, err = os.MkdirTemp("", "gpumux-cluster-"); err != nil {
		return err
	}
	// The database's user enters it.
	if err := os.Chmod(c.dir, 0o755); err != nil {
		return err
	}
	if err := c.database(); err != nil {
		return err
	}
	// On an empty database one service comes first and writes the cluster's metadata.
	for i, name := range []string{"frontend", "history", "matching", "worker"} {
		service := c.temporal(name, name, atFrontend+i)
		if name == "history" {
			service.ready = historyAnswers // it calls itself healthy 5 s later
		}
		if err := service.start(); err != nil {
			return err
		}
	}
	if err := c.script("namespace.sh"); err != nil {
		return err
	}
	for _, name := range namespaces {
		if _, err := c.cli("operator", "namespace", "create", "--namespace", name, "--retention", "24h"); err != nil {
			return err
		}
	}
	for _, name := range append([]string{"default"}, namespaces...) {
		known := func(context.Context) error { // history knows a namespace some seconds later
			_, err := c.cli("workflow", "describe", "--namespace", name, "--workflow-id", "nobody")
			if strings.Contains(fmt.Sprint(err), "Namespace "+name+" is not found") {
				return err
			}
			return nil
		}
		if err := await(known, nil); err != nil {
			return err
		}
	}
	if err := c.store(); err != nil {
		return err
	}
	c.base = len(c.order)
	return os.WriteFile(filepath.Join(c.dir, "work.py"), []byte(workPy), 0o644)
}

// database starts PostgreSQL, which no root may run, with the databases of Temporal.
func (c *cluster) database() error {
	const nobody = 65534
	bin, data := filepath.Join(c.folder, "postgresql"), filepath.Join(c.dir, "database")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	// What this machine's own Debian lacks of libraries was unpacked with the program.
	libraries, _ := filepath.Glob(filepath.Join(c.folder, "debian/usr/lib/*-linux-gnu"))
	env := []string{"LD_LIBRARY_PATH=" + strings.Join(libraries, ":")}
	p := c.add(&process{name: "postgresql", env: env, stop: syscall.SIGINT, // its fast shutdown
		argv: []string{filepath.Join(bin, "postgres"), "-D", data, "-c", "listen_addresses=" + at(atDatabase), "-c", "unix_socket_directories=",
			"-c", "max_connections=300"},
		ready: func(ctx context.Context) error {
			cmd := exec.CommandContext(ctx, filepath.Join(bin, "pg_isready"), "-q", "-h", at(atDatabase), "-U", "temporal", "-d", "postgres")
			cmd.Env = append(os.Environ(), env...)
			return cmd.Run()
		}})
	initialize := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "temporal", "--auth=trust", "--no-sync", "-E", "UTF8")
	initialize.Dir, initialize.Env = c.dir, append(os.Environ(), env...)
	if os.Getuid() == 0 {
		if err := os.Chown(data, nobody, nobody); err != nil {
			return err
		}
		p.owner = nobody
		initialize.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	if out, err := initialize.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	if err := p.start(); err != nil {
		return err
	}
	if err := c.script("schema.sh"); err != nil {
		return err
	}
	return c.script("schema.sh") // again it changes nothing
}

// namespaces are those beside the default one; a new one is known to all services after
// some seconds, so they are made at once.
var namespaces = []string{"versions", "limits"}

// store starts the S3 server, whose bucket is a folder.
func (c *cluster) store() error {
	if err := os.MkdirAll(filepath.Join(c.dir, "s3", "main"), 0o755); err != nil {
		return err
	}
	return c.add(&process{name: "versitygw", ready: speaks("http://" + at(atStore) + ":7070/health"),
		argv: []string{c.program("versitygw"), "--port", at(atStore) + ":7070", "--access", "key", "--secret", "secret", "--health", "/health",
			"--quiet", "posix", filepath.Join(c.dir, "s3")},
	}).start()
}

// temporal is a service of Temporal on a host of its own.
func (c *cluster) temporal(name, service string, host int) *process {
	health, ports := map[string]string{"frontend": "WorkflowService", "history": "HistoryService", "matching": "MatchingService",
		"worker": "WorkerService"}, map[string]string{"frontend": "7233", "history": "7234", "matching": "7235", "worker": "7239"}
	settings, err := filepath.Abs(filepath.Join(top, "deploy/temporal/dynamicconfig.yaml"))
	if err != nil {
		panic(err)
	}
	frontend := at(atFrontend) + ":7233"
	return c.add(&process{name: name, argv: []string{c.program("temporal-server"), "start", "--service", service},
		env: []string{"DB=postgres12_pgx", "POSTGRES_SEEDS=" + at(atDatabase), "POSTGRES_USER=temporal", "POSTGRES_PWD=temporal",
			"BIND_ON_IP=" + at(host), "PUBLIC_FRONTEND_ADDRESS=" + frontend, "CLUSTER_RPC_ADDRESS=" + frontend,
			"CLUSTER_HTTP_ADDRESS=" + at(atFrontend) + ":7243", "PROMETHEUS_ENDPOINT=" + at(host) + ":9090",
			"DYNAMIC_CONFIG_FILE_PATH=" + settings, "LOG_LEVEL=warn",
			"NUM_HISTORY_SHARDS=16"}, // so that each of two processes has some
		ready: serves(at(host)+":"+ports[service], health[service])})
}

// tools are the environment of deploy/temporal's scripts.
func (c *cluster) tools() []string {
	return append(os.Environ(), "PATH="+filepath.Join(c.folder, "bin")+":"+os.Getenv("PATH"), "SQL_HOST="+at(atDatabase), "SQL_PORT=5432",
		"SQL_USER=temporal", "SQL_PASSWORD=temporal", "SQL_PLUGIN=postgres12_pgx", "TEMPORAL_ADDRESS="+at(atFrontend)+":7233",
		"HOME="+c.dir)
}

// script runs one of deploy/temporal as it is.
func (c *cluster) script(name string) error {
	cmd := exec.Command("sh", filepath.Join(top, "deploy/temporal", name))
	cmd.Env = c.tools()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// cli runs Temporal's command.
func (c *cluster) cli(args ...string) (string, error) {
	cmd := exec.Command(c.program("temporal"), args...)
	cmd.Env = c.tools()
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("temporal %v: %w\n%s", args, err, out)
	}
	return string(out), err
}

// end stops everything, workers first.
func (c *cluster) end() (err error) {
	for _, p := range slices.Backward(c.order) {
		signal := syscall.SIGKILL
		if p.stop != 0 {
			signal = p.stop // it has processes of its own
		}
		err = errors.Join(err, p.end(signal))
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}
