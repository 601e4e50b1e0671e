package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// controlPort is where an emulated machine serves Enter.
const controlPort = "1022"

// message is what a program in an emulated machine wrote, or its end.
type message struct {
	Output, Errors []byte
	Ended          bool
	Code           int
}

func (m *Machine) control() string { return net.JoinHostPort(m.Address.Addr().String(), controlPort) }

// Serve runs programs that Enter asks for, in an emulated machine. A program ends
// with the connection that asked for it.
func Serve(c Config) error {
	if err := c.enterGroups(); err != nil {
		return err
	}
	server := http.Server{
		ReadHeaderTimeout: time.Minute, Addr: c.Machine.control(),
		Handler: http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
			var program []string
			if err := json.NewDecoder(request.Body).Decode(&program); err != nil || len(program) == 0 {
				http.Error(answer, "the body is not a program with its arguments", http.StatusBadRequest)
				return
			}
			stream := &stream{encoder: json.NewEncoder(answer), flush: http.NewResponseController(answer).Flush}
			cmd := exec.CommandContext(request.Context(), program[0], program[1:]...)
			cmd.Stdout, cmd.Stderr = stream.writer(false), stream.writer(true)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
			cmd.WaitDelay = time.Second // for those that keep its output open
			err := cmd.Run()
			end := message{Ended: true, Code: cmd.ProcessState.ExitCode()}
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
				end = message{Ended: true, Code: 1, Errors: []byte(err.Error() + "\n")}
			}
			_ = stream.send(end) // who does not hear it has ended
		}),
	}
	return server.ListenAndServe()
}

// stream sends messages, one at a time.
type stream struct {
	mu      sync.Mutex
	encoder *json.Encoder
	flush   func() error
}

func (s *stream) send(m message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.encoder.Encode(m), s.flush())
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }

func (s *stream) writer(problems bool) io.Writer {
	return writerFunc(func(text []byte) (int, error) {
		m := message{Output: text}
		if problems {
			m = message{Errors: text}
		}
		return len(text), s.send(m)
	})
}

// enter runs a program in the machine and ends this process as the program ends.
func (m *Machine) enter(program []string) error {
	body, err := json.Marshal(program)
	if err != nil {
		return err
	}
	response, err := http.Post("http://"+m.control(), "application/json", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the emulated machine: %w", err)
	}
	defer response.Body.Close()
	for decoder := json.NewDecoder(response.Body); ; {
		var part message
		if err := decoder.Decode(&part); err != nil {
			return fmt.Errorf("run %s in the emulated machine, which may have ended: %w", program[0], err)
		}
		_, outErr := os.Stdout.Write(part.Output)
		_, errErr := os.Stderr.Write(part.Errors)
		if err := errors.Join(outErr, errErr); err != nil {
			return err
		}
		if part.Ended {
			os.Exit(part.Code)
		}
	}
}
