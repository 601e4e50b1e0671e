package handler

import (
	"os/exec"
	"testing"
	"time"
)

func TestWatchExit(t *testing.T) {
	cmd := exec.Command("sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	unwatch, err := watchExit(cmd.Process.Pid, func() { close(ended) })
	if err != nil {
		t.Fatal(err)
	}
	defer unwatch()
	select {
	case <-ended:
		t.Fatal("told of an end before it")
	default:
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("not told of the end")
	}
	_ = cmd.Wait() // killed: the error says only that
}

func TestUnwatchedExitIsNotTold(t *testing.T) {
	cmd := exec.Command("sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	unwatch, err := watchExit(cmd.Process.Pid, func() { t.Error("told of an end after unwatch") })
	if err != nil {
		t.Fatal(err)
	}
	unwatch()
	unwatch()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func TestWatchExitOfNobody(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := watchExit(cmd.Process.Pid, func() {}); err == nil {
		t.Error("watching an ended process: want an error")
	}
}
