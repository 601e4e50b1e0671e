// Package netspace gives tests network namespaces of their own. They are known
// to this process only and go with it, and everything in them, however it ends.
package netspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Space is a network namespace.
type Space struct {
	handle netns.NsHandle
	jobs   chan func()
	closed chan struct{}
	close  sync.Once
	ended  sync.WaitGroup
}

// New makes an empty namespace with its loopback interface up, served by some
// threads: as many calls of Do and Dial run at once. Call Close to end it.
func New(threads int) (*Space, error) {
	var handle netns.NsHandle
	if err := onThread(func() (err error) {
		// The thread is in the new namespace from here on, and ends with its
		// goroutine.
		handle, err = netns.New()
		return err
	}); err != nil {
		return nil, fmt.Errorf("make a network namespace (are we root?): %w", err)
	}
	return open(handle, threads)
}

// Of opens the namespace of a process, see New.
func Of(pid, threads int) (*Space, error) {
	handle, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, fmt.Errorf("open the network namespace of process %d: %w", pid, err)
	}
	return open(handle, threads)
}

func open(handle netns.NsHandle, threads int) (*Space, error) {
	s := &Space{handle: handle, jobs: make(chan func()), closed: make(chan struct{})}
	started := make(chan error, threads)
	for range threads {
		s.ended.Go(func() { s.serve(started) })
	}
	var problems []error
	for range threads {
		problems = append(problems, <-started)
	}
	problems = append(problems, s.Do(func() error { return SetUp("lo") }))
	if err := errors.Join(problems...); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// onThread runs fn on a thread that is thrown away.
func onThread(fn func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with us
		result <- fn()
	}()
	return <-result
}

// serve runs jobs on a thread of the namespace.
func (s *Space) serve(started chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with us
	if err := netns.Set(s.handle); err != nil {
		started <- fmt.Errorf("enter a network namespace: %w", err)
		return
	}
	started <- nil
	for {
		select {
		case job := <-s.jobs:
			job()
		case <-s.closed:
			return
		}
	}
}

// Close ends the namespace once nothing of others is in it: sockets and
// processes keep it. It waits for what runs in it and is idempotent.
func (s *Space) Close() {
	s.close.Do(func() {
		close(s.closed)
		s.ended.Wait()
		_ = s.handle.Close()
	})
}

// FD is the namespace's file descriptor, for netlink.
func (s *Space) FD() int { return int(s.handle) }

// Do runs fn in the namespace. fn must not start goroutines that rely on it.
func (s *Space) Do(fn func() error) error {
	result := make(chan error, 1)
	select {
	case s.jobs <- func() { result <- fn() }:
		return <-result
	case <-s.closed:
		return errors.New("the network namespace is closed")
	}
}

// Dial connects from within the namespace. The address must be numeric: the
// look-up of a name would leave the namespace.
func (s *Space) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := s.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// SetUp sets a link of the calling thread's namespace up.
func SetUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set link %s up: %w", name, err)
	}
	return nil
}
