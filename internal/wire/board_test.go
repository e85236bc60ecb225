package wire

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// boardGolden is testdata/board.json: what a process writes on a board of size bytes,
// step by step. The Python tests read it too.
type boardGolden struct {
	Size  int `json:"size"`
	Steps []struct {
		// Read is what the worker has read before the step.
		Read    uint64 `json:"read"`
		Records []struct {
			Run      int64           `json:"run"`
			N        int             `json:"n"`
			Value    json.RawMessage `json:"value"`
			Kind     Kind            `json:"kind"`
			Hex      string          `json:"hex"`
			Attempts int             `json:"attempts"`
			Busy     float64         `json:"busy"`
			Ended    float64         `json:"ended"`
			Out      int64           `json:"out"`
			Peak     int64           `json:"peak"`
		} `json:"records"`
		// Board is how far the board is after it, Memory all of it in hexadecimal.
		Board  uint64 `json:"board"`
		Memory string `json:"memory"`
	} `json:"steps"`
}

func TestBoard_GoldenMemory(t *testing.T) {
	data, err := os.ReadFile("testdata/board.json")
	require.NoError(t, err)
	var golden boardGolden
	require.NoError(t, json.Unmarshal(data, &golden))
	b := &Board{memory: make([]byte, golden.Size)}
	for _, step := range golden.Steps {
		require.Equal(t, step.Read, b.read)
		memory, err := hex.DecodeString(step.Memory)
		require.NoError(t, err)
		copy(b.memory, memory)
		require.Equal(t, step.Board, b.Published())
		got, err := b.Read(step.Board)
		require.NoError(t, err)
		require.Len(t, got, len(step.Records))
		for i, r := range step.Records {
			value := r.Value
			if r.Kind != JSON {
				value, err = hex.DecodeString(r.Hex)
				require.NoError(t, err)
			}
			if r.Kind == Array || r.Kind == Mixed {
				require.Equal(t, append([]byte{byte(r.Kind)}, value...), got[i].Arrays())
			}
			got[i].kinded = nil
			require.Equal(t, Record{r.Run, r.N, value, r.Kind, r.Busy, r.Ended, r.Out, r.Peak, nil}, got[i])
		}
		require.Equal(t, step.Board, binary.LittleEndian.Uint64(b.memory[8:]), "the process sees what was read")
		got, err = b.Read(step.Board)
		require.NoError(t, err)
		require.Empty(t, got, "nothing is read twice")
	}
}

// record is one record as a process writes it; size may lie.
func record(size uint32, value string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, size)
	b = binary.LittleEndian.AppendUint32(b, 1) // attempts
	b = binary.LittleEndian.AppendUint64(b, 7) // run
	b = append(b, make([]byte, recordHead-len(b))...)
	b = append(b, value...)
	return append(b, make([]byte, -len(b)&7)...)
}

func TestBoard_Lies(t *testing.T) {
	change := func(at int, bytes ...byte) []byte {
		b := record(1, "1")
		copy(b[at:], bytes)
		return b
	}
	for name, c := range map[string]struct {
		records []byte
		end     uint64
		want    string
	}{
		"BeyondTheMemory":   {record(1, "1"), 4096, "cannot go from byte 0 to 4096"},
		"NotAMultiple":      {record(1, "1"), 57, "cannot go from byte 0 to 57"},
		"HugeOffset":        {record(1, "1"), 1 << 63, "cannot go from byte 0"},
		"ValueBeyondTheEnd": {record(9, "1"), 64, "claims a value of 9 bytes, where 8 are left"},
		"HugeValue":         {record(1<<32-2, "1"), 64, "claims a value of 4294967294 bytes"},
		"HalfAHead":         {record(1, "1"), 40, "claims a value of 1 bytes, where 0 are left"},
		"SkipInTheMiddle":   {record(boardSkip, "1"), 64, "claims a value of 4294967295 bytes"},
		"Empty":             {record(0, ""), 56, "an empty value"},
		"Zeros":             {make([]byte, 64), 64, "an empty value"},
		"RunZero":           {change(8, 0), 64, "is of run 0"},
		"NegativeRun":       {change(15, 255), 64, "runs count from 1"},
		"UnknownKind":       {change(20, 99), 64, "a value of kind 99"},
		"NegativeTime":      {change(30, 0xf0, 0xbf), 64, "took -1 seconds"},
		"NoNumber":          {change(30, 0xf8, 0x7f), 64, "took NaN seconds"},
		"InfiniteTime":      {change(30, 0xf0, 0x7f), 64, "took +Inf seconds"},
		"NoEnd":             {change(38, 0xf8, 0x7f), 64, "ended at NaN"},
		"NegativePeak":      {change(55, 0x80), 64, "a peak of -9223372036854775808 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &Board{memory: make([]byte, boardHead+256)}
			copy(b.memory[boardHead:], c.records)
			got, err := b.Read(c.end)
			var broke *ProtocolError
			require.ErrorAs(t, err, &broke)
			require.ErrorContains(t, err, c.want)
			require.Empty(t, got)
		})
	}
	var none *Board
	_, err := none.Read(8)
	require.ErrorContains(t, err, "has no board")
}

func TestBoard_WhatIsGoodBeforeALieCounts(t *testing.T) {
	b := &Board{memory: make([]byte, boardHead+256)}
	copy(b.memory[boardHead:], append(record(3, "123"), record(99, "1")...))
	got, err := b.Read(128)
	require.ErrorContains(t, err, "claims a value of 99 bytes")
	require.Len(t, got, 1)
	require.Equal(t, "123", string(got[0].Value))
}

// Whatever lies on a board, reading it ends, takes no more memory than the board has, and
// gives only records that hold.
func FuzzBoard_Read(f *testing.F) {
	f.Add(record(1, "1"), uint16(0), uint16(7))
	f.Add(append(record(3, "123"), record(1<<32-1, "")...), uint16(20), uint16(32))
	f.Fuzz(func(t *testing.T, ring []byte, read, length uint16) {
		if len(ring) == 0 {
			return
		}
		ring = append(ring, make([]byte, -len(ring)&7)...)
		b := &Board{memory: append(make([]byte, boardHead), ring...), read: uint64(read) * 8}
		end := b.read + uint64(length)*8
		got, err := b.Read(end)
		bytes := 0
		for _, r := range got {
			require.NoError(t, r.check())
			bytes += recordHead + len(r.Value)
		}
		require.LessOrEqual(t, bytes, len(ring))
		if err == nil {
			require.Equal(t, end, b.read)
		}
	})
}
