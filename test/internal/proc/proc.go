// Package proc runs programs that never outlive this process, however it ends.
package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// tailLines is how much of a program's log an error quotes.
const tailLines = 15

// pollInterval is how often a starting program is asked whether it is ready.
const pollInterval = 25 * time.Millisecond

// Group starts programs and ends them together.
//
// Programs get SIGKILL when this process dies (Pdeathsig). The kernel sends
// that signal when the THREAD that forked the program exits, and Go ends
// threads as it likes; so one goroutine, locked to a thread that stays for the
// Group's whole life, forks all of them.
type Group struct {
	home  string
	logs  string
	forks chan func()

	mu        sync.Mutex
	processes []*Process
	stopped   bool
}

// Process is a started program.
type Process struct {
	Name string
	PID  int
	log  string
	done chan struct{}
	err  error // why it ended; read only after done is closed
}

// NewGroup returns a Group whose programs run in the folder dir and log there,
// to files NAME.log. Call Stop to end it.
func NewGroup(dir string) *Group { return NewGroupLogging(dir, dir) }

// NewGroupLogging returns a Group whose programs run in the folder home and log
// to another folder.
func NewGroupLogging(home, logs string) *Group {
	g := &Group{home: home, logs: logs, forks: make(chan func())}
	go func() {
		// Never unlocked: when this goroutine returns, its thread ends too.
		runtime.LockOSThread()
		for fork := range g.forks {
			fork()
		}
	}()
	return g
}

// Start runs a program with a HOME and a plain PATH and nothing else of this
// process's environment.
func (g *Group) Start(name, path string, args ...string) (*Process, error) {
	// A process group of its own keeps a terminal's Ctrl-C from ending the
	// programs in random order: they go with us.
	return g.start(syscall.SysProcAttr{Setpgid: true}, name, path, args...)
}

// StartSession runs a program as Start does, in a session of its own: a kernel
// that groups what it schedules by session gives it a share of its own.
func (g *Group) StartSession(name, path string, args ...string) (*Process, error) {
	return g.start(syscall.SysProcAttr{Setsid: true}, name, path, args...)
}

func (g *Group) start(attributes syscall.SysProcAttr, name, path string, args ...string) (*Process, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return nil, fmt.Errorf("start %s: the group is stopped", name)
	}
	p := &Process{Name: name, log: filepath.Join(g.logs, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = g.home
	cmd.Env = []string{"HOME=" + g.home, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	attributes.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = &attributes
	started := make(chan error)
	g.forks <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.PID = cmd.Process.Pid
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	g.processes = append(g.processes, p)
	return p, nil
}

// Stop kills all programs, waits until they are gone and ends the Group. A
// graceful end would only save data that is thrown away, and takes an API
// server 20 s.
func (g *Group) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return
	}
	g.stopped = true
	for _, p := range g.processes {
		p.kill()
	}
	for _, p := range g.processes {
		<-p.done
	}
	close(g.forks)
}

// Kill ends the program at once, as a crash would, and waits until it is gone.
func (p *Process) Kill() {
	p.kill()
	<-p.done
}

func (p *Process) kill() {
	select {
	case <-p.done: // reaped: the id may belong to another process by now
	default:
		_ = syscall.Kill(-p.PID, syscall.SIGKILL)
	}
}

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// WaitReady polls probe until it succeeds. It fails when the program ends or
// ctx does, quoting the end of the program's log.
func (p *Process) WaitReady(ctx context.Context, probe func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.done:
			return p.failure(fmt.Errorf("it ended (%w) before it was ready", p.reason()))
		case <-ctx.Done():
			return p.failure(fmt.Errorf("not ready in time (%w): last answer: %w", context.Cause(ctx), err))
		}
	}
}

func (p *Process) reason() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// Failure says how a program ended, with the end of its log. It waits for that.
func (p *Process) Failure() error {
	<-p.done
	return p.failure(p.reason())
}

func (p *Process) failure(err error) error {
	return fmt.Errorf("%s: %w\n--- end of %s\n%s", p.Name, err, p.log, p.tail())
}

func (p *Process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
