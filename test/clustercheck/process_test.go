//go:build linux

package clustercheck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/gpumux/gpumux/test/programtest"
)

// patience is the limit of everything that is waited for: others use the machine too.
const patience = 5 * time.Minute

// process is a program that can be stopped, killed and started again.
type process struct {
	name string
	argv []string
	env  []string
	// owner is the user that it runs as; 0 is ours.
	owner int
	// stop asks it to end; 0 is SIGTERM.
	stop syscall.Signal
	// ready is nil once it serves.
	ready func(context.Context) error

	cmd   *exec.Cmd
	ended chan struct{}
}

// start starts the process and returns when it serves.
func (p *process) start() error {
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), p.env...)
	if p.owner != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.owner), Gid: uint32(p.owner)}}
	}
	if err := programtest.Spawn(cmd, p.log()); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.ended = cmd, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait()
	}(p.ended)
	err := await(p.ready, p.ended)
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended: %s; its output is in %s", p.name, cmd.ProcessState, p.log())
	default:
	}
	if err != nil {
		return fmt.Errorf("%s does not serve: %w; its output is in %s", p.name, err, p.log())
	}
	return nil
}

// await asks until the answer is nil, at most for as long as patience. It returns the
// last answer, that when ended is closed too.
func await(answer func(context.Context) error, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := answer(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return err
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *process) log() string { return filepath.Join(c.folder, "logs", p.name+".log") }

// alive reports whether the process runs.
func (p *process) alive() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// end sends a signal and returns when the process is gone.
func (p *process) end(signal syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	_ = p.cmd.Process.Signal(signal) // one that has ended is what is wanted
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("%s does not end by %s", p.name, signal), p.cmd.Process.Kill())
	}
}

// asked is the signal that asks the process to end.
func (p *process) asked() syscall.Signal {
	if p.stop != 0 {
		return p.stop
	}
	return syscall.SIGTERM
}

// away takes the process away for a time by a signal, and returns how long it did not
// serve.
func (p *process) away(signal syscall.Signal, minimum time.Duration) (time.Duration, error) {
	begun := time.Now()
	if err := p.end(signal); err != nil {
		return 0, err
	}
	<-time.After(minimum - time.Since(begun)) // the outage itself
	err := p.start()
	return time.Since(begun), err
}

// speaks is ready when an address answers HTTP with 200.
func speaks(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	}
}

// historyAnswers is nil once the frontend has answers from all shards of history.
func historyAnswers(ctx context.Context) error {
	conn, err := grpc.NewClient(at(atFrontend)+":7233", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // a frontend asks an absent history until then
	defer cancel()
	for i := range 100 {
		_, err := workflowservice.NewWorkflowServiceClient(conn).DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: "temporal-system", Execution: &commonpb.WorkflowExecution{WorkflowId: fmt.Sprint("nobody's-", i)}})
		if err != nil && status.Code(err) != codes.NotFound {
			return err
		}
	}
	return nil
}

// serves is ready when a service of Temporal says that it is healthy.
func serves(address, service string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{
			Service: "temporal.api.workflowservice.v1." + service})
		if err == nil && answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			err = errors.New(answer.GetStatus().String())
		}
		return err
	}
}
