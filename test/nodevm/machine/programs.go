package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// Service has the calls of every machine.
type Service struct {
	mu       sync.Mutex
	programs map[string]*program
}

type program struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// NewService returns one without programs.
func NewService() *Service { return &Service{programs: map[string]*program{}} }

// outputOf is where a program's output goes.
func outputOf(name string) string { return filepath.Join("/tmp", name+".log") }

// Start runs a program in the background. Its output goes to a file, after that of an
// earlier one of the same name.
func (s *Service) Start(p wire.Program, _ *wire.None) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	output, err := os.OpenFile(outputOf(p.Name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer output.Close()
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = []string{"HOME=/tmp", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	started := &program{cmd: cmd, done: make(chan struct{})}
	s.programs[p.Name] = started
	go func() {
		err := cmd.Wait()
		if line, openErr := os.OpenFile(outputOf(p.Name), os.O_WRONLY|os.O_APPEND, 0); openErr == nil {
			fmt.Fprintf(line, "ended: %v\n", err)
			_ = line.Close()
		}
		close(started.done)
	}()
	return nil
}

// Signal sends a signal to a program.
func (s *Service) Signal(signal wire.Signal, _ *wire.None) error {
	s.mu.Lock()
	p, ok := s.programs[signal.Name]
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("no program %s was started", signal.Name)
	}
	select {
	case <-p.done:
		return fmt.Errorf("program %s has ended: its output has %s", signal.Name, outputOf(signal.Name))
	default:
	}
	if err := p.cmd.Process.Signal(syscall.Signal(signal.Signal)); err != nil {
		return fmt.Errorf("signal %s: %w", signal.Name, err)
	}
	if signal.Wait {
		<-p.done
	}
	return nil
}

// outputLines is how much of a program's output is told.
const outputLines = 40

// Output is the end of what a program printed.
func (s *Service) Output(name string, output *string) error {
	content, err := os.ReadFile(outputOf(name))
	if err != nil {
		return err
	}
	*output = Tail(content, outputLines)
	return nil
}

// WriteFile writes a file.
func (s *Service) WriteFile(f wire.File, _ *wire.None) error {
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(f.Path, []byte(f.Content), 0o600)
}

// ReadFile reads one.
func (s *Service) ReadFile(path string, content *string) error {
	read, err := os.ReadFile(path)
	*content = string(read)
	return err
}

// Alive answers.
func (s *Service) Alive(_ wire.None, _ *wire.None) error { return nil }
