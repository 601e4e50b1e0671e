//go:build !fq

package buffer

import (
	"testing"

	"github.com/joulevirt/joulevirt/internal/host/hosttest"
)

func TestMain(m *testing.M) { hosttest.Main(m) }
