package datapath

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Bits of the sketch of sources.
const sourceBits = 4096

// Longest times that make sense.
const (
	maxHold = time.Hour
	maxGap  = time.Second
)

// validate tells what is wrong with a configuration. The zero one is right.
func (c Config) validate() error {
	if c.IsZero() {
		return nil
	}
	wrong := ""
	switch {
	case !c.IsValid():
		wrong = "windows, rate and services have to be such as model.Buffering allows"
	case c.OffPackets < 1 || float64(c.OffPackets) > float64(c.OnPackets):
		wrong = fmt.Sprintf("OffPackets is %d: it has to be from 1 to OnPackets", c.OffPackets)
	case c.Hold < 0 || c.Hold > maxHold:
		wrong = fmt.Sprintf("Hold is %s: it has to be from 0 to %s", c.Hold, maxHold)
	case c.Gap < 0 || c.Gap > maxGap:
		wrong = fmt.Sprintf("Gap is %s: it has to be from 0 to %s", c.Gap, maxGap)
	case c.MostArrivals < 1:
		wrong = "MostArrivals is 0: it has to be 1 or more"
	case !(c.FloodSYN >= 0 && c.FloodSYN <= 1):
		wrong = fmt.Sprintf("FloodSYN is %g: it has to be from 0 to 1", c.FloodSYN)
	}
	if wrong != "" {
		return fmt.Errorf("configuration of held packets: %s", wrong)
	}
	return nil
}

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
	raw.FloodSyn = uint32(math.Round(c.FloodSYN * 65536))
	raw.FloodBits = bitsOf(c.FloodSources)
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

// bitsOf is how many bits a number of sources sets on average: each leaves a bit with
// probability 1-1/m, so that of m bits m (1 - e^(-n/m)) are set.
func bitsOf(sources uint32) uint32 {
	return uint32(math.Ceil(sourceBits * -math.Expm1(-float64(sources)/sourceBits)))
}

// sourcesOf is about how many sources set so many bits: the reverse of bitsOf, known as
// linear counting.
func sourcesOf(bits uint64) int {
	// All bits set tell only that there were very many.
	bits = min(bits, sourceBits-1)
	return int(math.Round(-sourceBits * math.Log1p(-float64(bits)/sourceBits)))
}
