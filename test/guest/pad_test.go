package guest

import (
	"hash/crc32"
	"math"
	"testing"
)

func TestPad(t *testing.T) {
	for content := range 100 {
		padded := pad([]byte{byte(content)})
		if sum := crc32.ChecksumIEEE(padded); sum > math.MaxInt32 {
			t.Errorf("%d padded to %v has checksum %#x", content, padded, sum)
		}
	}
}
