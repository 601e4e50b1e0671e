package datapath

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Config says how the packets that leave through a device are held.
type Config struct {
	model.Buffering
	// OffPackets is the rate below which packets are no longer held, once they came slower
	// for Hold.
	OffPackets uint32
	Hold       time.Duration
	// A bunch of arrivals is packets that come within Gap of one another: who wakes for
	// the first finds the others. From MostArrivals packets a bunch on nothing is gained
	// by holding them.
	Gap          time.Duration
	MostArrivals uint32
	// A flood is FloodPackets segments per second more than usual, or even more, of
	// FloodBytes or less on average: see docs/design/shaping-and-buffering.md.
	FloodPackets, FloodBytes uint32
}

// ConfigOf adds what a plan does not say.
func ConfigOf(b model.Buffering) Config {
	const offShare = 0.7
	return Config{
		Buffering: b, OffPackets: max(1, uint32(float64(b.OnPackets)*offShare)), Hold: 2 * time.Second,
		Gap: 10 * time.Microsecond, MostArrivals: 32,
		FloodPackets: 10_000, FloodBytes: 100,
	}
}

// Bits of the sketch of sources.
const sourceBits = 4096

// raw is the configuration as the program reads it, after another one.
func (c Config) raw(before bpf.JvConfig) (bpf.JvConfig, error) {
	raw := bpf.JvConfig{Generation: before.Generation + 1, Seed: before.Seed}
	if raw.Seed == 0 {
		// Nobody outside is to know which addresses look like one.
		var seed [4]byte
		if _, err := rand.Read(seed[:]); err != nil {
			return raw, err
		}
		raw.Seed = binary.NativeEndian.Uint32(seed[:]) | 1
	}
	if c.IsZero() {
		return raw, nil
	}
	raw.Window, raw.FloodWindow = uint64(c.Window), uint64(c.FloodWindow)
	raw.Hold, raw.Gap = uint64(c.Hold), uint64(c.Gap)
	// A part of a packet cannot come.
	raw.On, raw.Off, raw.MostArrivals = uint32(math.Ceil(float64(c.OnPackets))), c.OffPackets, c.MostArrivals
	raw.FloodPackets, raw.FloodBytes = c.FloodPackets, c.FloodBytes
	for i, s := range c.Services {
		raw.Services[i] = rawService(s)
	}
	return raw, nil
}

func rawService(s model.Service) uint32 {
	raw := 1<<31 | uint32(s.Port)
	if s.UDP {
		raw |= 1 << 16
	}
	return raw
}

// sourcesOf is about how many sources set so many bits. Each of n leaves a bit with
// probability 1-1/m, so that of m bits m (1 - e^(-n/m)) are set: linear counting.
func sourcesOf(bits uint64) int {
	// All bits set say only that there were very many.
	bits = min(bits, sourceBits-1)
	return int(math.Round(-sourceBits * math.Log1p(-float64(bits)/sourceBits)))
}

func (Config) kind() kind { return buffering }

func (c Config) write(config *ebpf.Map) error {
	var before bpf.JvConfig
	if err := config.Lookup(uint32(0), &before); err != nil {
		return fmt.Errorf("read the configuration of the programs that hold packets: %w", err)
	}
	raw, err := c.raw(before)
	if err != nil {
		return err
	}
	if err := config.Put(uint32(0), &raw); err != nil {
		return fmt.Errorf("configure the programs that hold packets: %w", err)
	}
	return nil
}
