package libvirt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// The parts of libvirt's remote protocol that the guard knows (libvirt:
// src/rpc/virnetprotocol.x, src/remote/remote_protocol.x).
const (
	headerSize = 28 // length, program, version, procedure, type, serial, status
	// maxReply is ample for the statistics of a domain with 512 vCPUs.
	maxReply = 1 << 20

	remoteProgram = 0x20008086
	typeCall      = 0
	typeReply     = 1
	statusOK      = 0
	statusError   = 1

	procConnectOpen  = 1
	procConnectClose = 2
	procAuthList     = 66
	procAllStats     = 344

	openReadOnly = 1 // VIR_CONNECT_RO
	maxAuthTypes = 8
	maxDomains   = 8
)

var errForeign = errors.New("the answer is not as libvirt writes it")

// guard is a connection that lets through only the calls that this package
// makes and only well-formed replies to them, each once.
//
// The client library needs it: it gives memory of the sizes that a reply
// claims, panics in a goroutine of its own on a length below the header's,
// hangs when a call is answered twice, spins when a read times out, and cannot
// open read-only.
type guard struct {
	net.Conn
	// rest of the reply that was checked and not read yet.
	rest []byte

	mu sync.Mutex
	// pending calls: procedure by serial.
	pending map[uint32]uint32
}

func newGuard(conn net.Conn) *guard {
	return &guard{Conn: conn, pending: map[uint32]uint32{}}
}

// Write takes one whole call, which is how the library writes small ones.
func (g *guard) Write(call []byte) (int, error) {
	if len(call) < headerSize || int(word(call, 0)) != len(call) || word(call, 4) != typeCall {
		return 0, errors.New("not one whole call")
	}
	procedure, serial := word(call, 3), word(call, 5)
	switch procedure {
	case procAuthList, procAllStats, procConnectClose:
	case procConnectOpen:
		call = append([]byte(nil), call...)
		binary.BigEndian.PutUint32(call[len(call)-4:], openReadOnly)
	default:
		return 0, fmt.Errorf("procedure %d is not a known read-only one", procedure)
	}
	g.mu.Lock()
	g.pending[serial] = procedure
	g.mu.Unlock()
	return g.Conn.Write(call)
}

// Read gives out checked replies. Its errors are none of net's, which the
// library takes for temporary.
func (g *guard) Read(p []byte) (int, error) {
	if len(g.rest) == 0 {
		reply, err := g.next()
		if err != nil {
			g.Close()
			return 0, fmt.Errorf("libvirt connection closed: %w", io.ErrUnexpectedEOF)
		}
		g.rest = reply
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

// next reads and checks one reply.
func (g *guard) next() ([]byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(g.Conn, header[:]); err != nil {
		return nil, err
	}
	size := word(header[:], 0)
	if size < headerSize || size > maxReply || size%4 != 0 {
		return nil, errForeign
	}
	if word(header[:], 1) != remoteProgram || word(header[:], 4) != typeReply {
		return nil, errForeign
	}
	procedure, ok := g.take(word(header[:], 5))
	if !ok || procedure != word(header[:], 3) {
		return nil, errForeign
	}
	reply := make([]byte, size)
	copy(reply, header[:])
	if _, err := io.ReadFull(g.Conn, reply[headerSize:]); err != nil {
		return nil, err
	}
	return reply, checkReply(procedure, word(header[:], 6), reply[headerSize:])
}

// take removes a pending call.
func (g *guard) take(serial uint32) (procedure uint32, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	procedure, ok = g.pending[serial]
	delete(g.pending, serial)
	return procedure, ok
}

func word(b []byte, index int) uint32 { return binary.BigEndian.Uint32(b[4*index:]) }

// checkReply walks the payload of a reply, so that no length in it is beyond
// what is there.
func checkReply(procedure, status uint32, payload []byte) error {
	w := walker{left: payload}
	switch {
	case status == statusError:
		w.skip(12) // code, domain, "a message follows"
		w.text()
		return w.err // what follows is not decoded
	case status != statusOK:
		return errForeign
	case procedure == procAuthList:
		w.skip(4 * w.count(maxAuthTypes, 4))
	case procedure == procAllStats:
		for range w.count(maxDomains, minRecord) {
			w.record()
		}
	}
	if w.err == nil && len(w.left) > 0 {
		return errForeign
	}
	return w.err
}

// walker walks XDR data. After an error it does nothing.
type walker struct {
	left []byte
	err  error
}

// Sizes of the smallest record of a domain's statistics (name, UUID, ID, count)
// and of the smallest parameter (name, type, value).
const (
	minRecord    = 4 + 16 + 4 + 4
	minParameter = 4 + 4 + 4
)

func (w *walker) skip(n int) {
	if w.err != nil || n > len(w.left) {
		w.err = errForeign
		return
	}
	w.left = w.left[n:]
}

func (w *walker) number() uint32 {
	if w.err != nil || len(w.left) < 4 {
		w.err = errForeign
		return 0
	}
	n := word(w.left, 0)
	w.left = w.left[4:]
	return n
}

// count reads the number of elements of an array, each of at least size bytes.
func (w *walker) count(most, size int) int {
	n := w.number()
	if w.err != nil || uint64(n) > uint64(most) || uint64(n)*uint64(size) > uint64(len(w.left)) {
		w.err = errForeign
		return 0
	}
	return int(n)
}

// text is a length and so many bytes, filled up to a multiple of four.
func (w *walker) text() {
	n := w.count(maxReply, 1)
	w.skip((n + 3) / 4 * 4)
}

func (w *walker) record() {
	w.text()
	w.skip(16 + 4)
	for range w.count(maxReply, minParameter) {
		w.text()
		switch w.number() {
		case 1, 2, 6: // int, unsigned int, boolean
			w.skip(4)
		case 3, 4, 5: // long long, unsigned long long, double
			w.skip(8)
		case 7:
			w.text()
		default:
			w.err = errForeign
		}
	}
}
