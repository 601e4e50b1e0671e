package ledger

import (
	"encoding/binary"
	"hash/crc32"
)

// Seal puts magic and checksum around a body, so that it is read.
func Seal(body []byte) []byte {
	out := append([]byte(magic), body...)
	return binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
}

// Unseal is the body of what was saved.
func Unseal(stored []byte) []byte { return stored[len(magic) : len(stored)-4] }
