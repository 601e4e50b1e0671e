package libvirt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

// server plays libvirt at the other end of a pipe. answer gets each call's
// procedure, serial and payload and returns what to send, or nil to be silent.
func server(t *testing.T, answer func(procedure, serial uint32, payload []byte) []byte) Dial {
	return func(context.Context) (net.Conn, error) {
		client, remote := net.Pipe()
		go func() {
			defer remote.Close()
			header := make([]byte, headerSize)
			for {
				if _, err := readFull(remote, header); err != nil {
					return
				}
				payload := make([]byte, word(header, 0)-headerSize)
				if _, err := readFull(remote, payload); err != nil {
					return
				}
				if reply := answer(word(header, 3), word(header, 5), payload); reply != nil {
					if _, err := remote.Write(reply); err != nil {
						return
					}
				}
			}
		}()
		t.Cleanup(func() { remote.Close() })
		return client, nil
	}
}

func readFull(conn net.Conn, buf []byte) (int, error) {
	n := 0
	for n < len(buf) {
		m, err := conn.Read(buf[n:])
		if err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

func reply(procedure, serial, status uint32, payload []byte) []byte {
	var b []byte
	for _, w := range []uint32{uint32(headerSize + len(payload)), remoteProgram, 1, procedure, typeReply, serial, status} {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return append(b, payload...)
}

func text(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(append(b, s...), make([]byte, (4-len(s)%4)%4)...)
}

// stats is the reply of a domain with two vCPUs.
func stats(name string) []byte {
	b := binary.BigEndian.AppendUint32(nil, 1)
	b = append(text(b, name), make([]byte, 16)...)
	b = binary.BigEndian.AppendUint32(b, 3) // its ID
	b = binary.BigEndian.AppendUint32(b, 5)
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(text(b, "vcpu.current"), 2), 2)
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(text(b, "vcpu.0.delay"), 4), 1_500_000_000)
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(text(b, "vcpu.1.delay"), 4), 250_000_000)
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(text(b, "balloon.maximum"), 4), 1048576)
	return text(binary.BigEndian.AppendUint32(text(b, "vcpu.0.note"), 7), "text")
}

// honest answers as libvirt does.
func honest(procedure, serial uint32, _ []byte) []byte {
	switch procedure {
	case procAuthList:
		return reply(procedure, serial, statusOK, []byte{0, 0, 0, 1, 0, 0, 0, 0})
	case procAllStats:
		return reply(procedure, serial, statusOK, stats("shop_web"))
	default:
		return reply(procedure, serial, statusOK, nil)
	}
}

func TestRead(t *testing.T) {
	readOnly := false
	dial := server(t, func(procedure, serial uint32, payload []byte) []byte {
		if procedure == procConnectOpen {
			readOnly = bytes.HasSuffix(payload, []byte{0, 0, 0, openReadOnly})
		}
		return honest(procedure, serial, payload)
	})
	facts, err := Read(t.Context(), dial, "shop_web")
	if err != nil {
		t.Fatal(err)
	}
	want := &model.DomainFacts{VCPUDelaySeconds: []float64{1.5, 0.25}, MaxMemoryKiB: 1048576, VCPUs: 2}
	if diff := cmp.Diff(want, facts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !readOnly {
		t.Error("the connection was not opened read-only")
	}
	if _, err := Read(t.Context(), dial, "shop_other"); err == nil {
		t.Error("facts of a domain that is not there")
	}
}

func TestALibvirtThatRefusesAndSaysWhy(t *testing.T) {
	message := binary.BigEndian.AppendUint32(nil, 38)
	message = append(message, 0, 0, 0, 7, 0, 0, 0, 1)
	message = text(message, "no driver for you")
	message = append(message, make([]byte, 64)...)
	dial := server(t, func(procedure, serial uint32, payload []byte) []byte {
		if procedure == procConnectOpen {
			return reply(procedure, serial, statusError, message)
		}
		return honest(procedure, serial, payload)
	})
	if _, err := Read(t.Context(), dial, "shop_web"); err == nil {
		t.Error("no error")
	}
}

func TestHostileAnswers(t *testing.T) {
	at := func(procedure uint32, hostile func(serial uint32) []byte) Dial {
		return server(t, func(p, serial uint32, payload []byte) []byte {
			if p == procedure {
				return hostile(serial)
			}
			return honest(p, serial, payload)
		})
	}
	length := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	for name, dial := range map[string]Dial{
		"a length below the header's": at(procAuthList, func(uint32) []byte { return append(length(4), make([]byte, 24)...) }),
		"a length of 4 GiB":           at(procAuthList, func(uint32) []byte { return append(length(1<<32-4), make([]byte, 24)...) }),
		"an array of 2^31 records":    at(procAllStats, func(s uint32) []byte { return reply(procAllStats, s, 0, length(1<<31-1)) }),
		"a text of 2 GiB": at(procAllStats, func(s uint32) []byte {
			return reply(procAllStats, s, 0, append(length(1), append(length(1<<31-4), make([]byte, 64)...)...))
		}),
		"an error message of 2 GiB": at(procAllStats, func(s uint32) []byte {
			return reply(procAllStats, s, statusError, append(make([]byte, 12), length(1<<31-4)...))
		}),
		"an answer to another call": at(procAllStats, func(s uint32) []byte { return reply(procAllStats, s+7, 0, stats("shop_web")) }),
		"an answer of another kind": at(procAllStats, func(s uint32) []byte { return reply(procAuthList, s, 0, length(0)) }),
		"the same answer twice": at(procAuthList, func(s uint32) []byte {
			one := honest(procAuthList, s, nil)
			return append(one, one...)
		}),
		"an event": at(procAllStats, func(s uint32) []byte {
			event := reply(procAllStats, s, 0, length(0))
			event[4*4+3] = 2 // type: message
			return event
		}),
		"more than was announced": at(procAllStats, func(s uint32) []byte {
			return reply(procAllStats, s, 0, append(stats("shop_web"), 0, 0, 0, 0))
		}),
		"an unknown type of parameter": at(procAllStats, func(s uint32) []byte {
			payload := append(text(length(1), "shop_web"), make([]byte, 20)...)
			payload = text(append(payload, length(1)...), "vcpu.0.delay")
			return reply(procAllStats, s, 0, append(append(payload, length(99)...), make([]byte, 8)...))
		}),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if facts, err := Read(ctx, dial, "shop_web"); err == nil {
				t.Errorf("facts %+v", facts)
			} else if ctx.Err() != nil {
				t.Errorf("only the timeout ended it: %v", err)
			}
		})
	}
}

func TestASilentLibvirtTimesOut(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	before := runtime.NumGoroutine()
	dial := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", listener.Addr().String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Read(ctx, dial, "shop_web"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Read: %v, want the deadline", err)
	}
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

func FuzzCheckReply(f *testing.F) {
	f.Add(uint32(procAllStats), uint32(statusOK), stats("shop_web"))
	f.Add(uint32(procAuthList), uint32(statusOK), []byte{0, 0, 0, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, procedure, status uint32, payload []byte) {
		_ = checkReply(procedure, status, payload) // neither panics nor takes memory
	})
}
