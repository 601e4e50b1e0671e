package port

import (
	"net"
	"strconv"
	"testing"
)

func TestLeasesAgree(t *testing.T) {
	dir := t.TempDir()
	seen := map[int]bool{}
	for range 2 {
		lease, err := NewLease(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Close()
		for range 200 {
			port, err := lease.Take()
			if err != nil {
				t.Fatal(err)
			}
			if seen[port] {
				t.Errorf("port %d was handed out twice", port)
			}
			seen[port] = true
		}
	}
}

func TestReserveIsExclusiveUntilClosed(t *testing.T) {
	dir := t.TempDir()
	a, err := NewLease(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewLease(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	port, err := a.Take()
	if err != nil {
		t.Fatal(err)
	}
	if file, err := b.reserve(port); err != nil || file != nil {
		t.Errorf("reserve a held port: %v, %v, want neither file nor error", file, err)
	}
	a.Close()
	file, err := b.reserve(port)
	if err != nil || file == nil {
		t.Fatalf("reserve a port given back: %v, %v", file, err)
	}
	_ = file.Close()
}

func TestFreeSeesListeners(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	if free(port) {
		t.Errorf("port %d with a listener counts as free", port)
	}
	_ = listener.Close()
	if !free(port) {
		t.Errorf("port %d without a listener counts as taken", port)
	}
}
