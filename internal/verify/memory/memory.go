// Package memory encodes what the manager remembers of one policy's trials and savings: one
// JSON document, compressed by gzip, which EnergyLedger.status.memory holds.
package memory

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// mostBytes bounds the document before compression.
const mostBytes = 64 << 20

// Memory of one policy.
type Memory struct {
	Trials *proof.Proofs  `json:"trials"`
	Ledger *ledger.Ledger `json:"ledger"`
}

// New returns an empty memory.
func New() *Memory { return &Memory{Trials: proof.New(), Ledger: ledger.New()} }

// Encode returns the memory as bytes to be stored, the same for the same content.
func (m *Memory) Encode() ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	if err := json.NewEncoder(compressed).Encode(m); err != nil {
		return nil, fmt.Errorf("encode trials and ledger: %w", err)
	}
	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("compress trials and ledger: %w", err)
	}
	return out.Bytes(), nil
}

// Decode reads what Encode wrote. Nothing stored is an empty memory.
func Decode(stored []byte) (*Memory, error) {
	m := New()
	if len(stored) == 0 {
		return m, nil
	}
	compressed, err := gzip.NewReader(bytes.NewReader(stored))
	if err != nil {
		return nil, fmt.Errorf("read stored trials and ledger: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(compressed, mostBytes))
	if err != nil {
		return nil, fmt.Errorf("read stored trials and ledger: %w", err)
	}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("decode stored trials and ledger: %w", err)
	}
	if m.Trials == nil || m.Ledger == nil {
		return nil, fmt.Errorf("decode stored trials and ledger: one of the two is missing")
	}
	return m, nil
}
