package store

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// An encrypted object, numbers big-endian:
//
//	magic "gpumuxs" 0x01 | length of the key's ID u8 | ID, 63 bytes filled up with zeros |
//	salt, 32 random bytes | check, 16 bytes | segments
//
// A segment is 64 KiB of the plain object, the last one less, under AES-256-GCM, which
// adds 16 bytes. The key is derived from the named one, the salt and sealPurpose. The
// nonce is 3 zeros, the number of the segment u64, and a byte that is 1 for the last one.
// The head is authenticated with each. The check is the tag of an empty segment with a
// nonce of twelve 0xff, by which a wrong key is told from damage. So a stretch is read by
// its segments alone, the plain size follows from the object's, and segments that were
// changed, moved, left out or cut off at the end are noticed.
//
// A library's format would cost more: age's has another cipher and needs the last segment
// before any stretch, and Tink's cannot be read from the middle.
const (
	sealMagic   = "gpumuxs\x01"
	sealPurpose = "gpumux object 1"
	sealID      = 63
	sealSalt    = 32
	sealCheck   = len(sealMagic) + 1 + sealID + sealSalt
	sealHead    = sealCheck + sealTag
	sealSegment = 64 << 10
	sealTag     = 16

	sealedSegment = sealSegment + sealTag
)

// Keys are what a store encrypts its objects with; package codec reads them from files.
// The methods may be called by many goroutines at once.
type Keys interface {
	// Current is the ID of the key that encrypts, at most 63 bytes.
	Current() string
	// Derive makes a key of 32 bytes out of the key of that ID, always the same one for
	// the same arguments.
	Derive(id string, salt []byte, purpose string) ([]byte, error)
}

// KeyError says that an object cannot be read with the keys that this store has. It stays
// wrong until somebody changes them.
type KeyError struct {
	URL string
	Err error
}

// Error names the object and what to do.
func (e *KeyError) Error() string { return fmt.Sprintf("read %s: %v", e.URL, e.Err) }

// Unwrap gives the cause.
func (e *KeyError) Unwrap() error { return e.Err }

var (
	errNoKeys = errors.New("it is encrypted, and this store was opened without keys; give the keys (codec.keys in the worker's file)")
	errPlain = errors.New("it is not encrypted, although this store has keys: somebody without keys wrote it; give keys to all " +
		"workers and clients of this store, and delete it")
)

// seal encrypts the segments of one object.
type seal struct {
	cipher.AEAD
	head []byte
}

// sealing says whether the store's keys apply to an object.
type sealing int

const (
	// sealedOnly is written encrypted, and read only if it is; sealedOrPlain may be read plain.
	sealedOnly sealing = iota
	sealedOrPlain
	// asItLies is neither encrypted nor decrypted.
	asItLies
)

var checkNonce = bytes.Repeat([]byte{0xff}, 12)

// newSeal makes the head of an object.
func newSeal(keys Keys) (*seal, error) {
	id := keys.Current()
	if len(id) == 0 || len(id) > sealID {
		return nil, fmt.Errorf("the ID %.80q of the key has %d bytes, not 1 to %d", id, len(id), sealID)
	}
	head := make([]byte, sealHead)
	n := copy(head, sealMagic)
	head[n] = byte(len(id))
	copy(head[n+1:], id)
	_, _ = rand.Read(head[sealCheck-sealSalt : sealCheck])
	s, err := deriveSeal(keys, id, head)
	if err == nil {
		s.Seal(head[:sealCheck], checkNonce, nil, head[:sealCheck])
	}
	return s, err
}

// openSeal reads the head of an object.
func openSeal(keys Keys, head []byte) (*seal, error) {
	id := string(head[len(sealMagic)+1:][:min(int(head[len(sealMagic)]), sealID)])
	s, err := deriveSeal(keys, id, head)
	if err != nil {
		return nil, err
	}
	if _, err := s.Open(nil, checkNonce, head[sealCheck:], head[:sealCheck]); err != nil {
		return nil, fmt.Errorf("its head does not fit the key %q: that is another key of the same name, or the head was changed", id)
	}
	return s, nil
}

func deriveSeal(keys Keys, id string, head []byte) (*seal, error) {
	key, err := keys.Derive(id, head[sealCheck-sealSalt:sealCheck], sealPurpose)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	return &seal{gcm, head}, err
}

func sealNonce(number int64, last bool) []byte {
	nonce := make([]byte, 12)
	binary.BigEndian.PutUint64(nonce[3:], uint64(number))
	if last {
		nonce[11] = 1
	}
	return nonce
}

// sealedSink encrypts what it hands on.
type sealedSink struct {
	sink
	seal *seal
	// plain is the segment that grows. It is handed on when it is known whether it is the
	// last.
	plain, sealed []byte
	number        int64
}

func newSealedSink(s *seal, into sink) sink {
	return &sealedSink{sink: into, seal: s, plain: make([]byte, 0, sealSegment), sealed: slices.Clone(s.head)}
}

// Write is io.Writer's.
func (s *sealedSink) Write(data []byte) (written int, err error) {
	for len(data) > 0 {
		if len(s.plain) == sealSegment {
			if err := s.flush(false); err != nil {
				return written, err
			}
		}
		n := min(len(data), sealSegment-len(s.plain))
		s.plain = append(s.plain, data[:n]...)
		written, data = written+n, data[n:]
	}
	return written, nil
}

func (s *sealedSink) flush(last bool) error {
	s.sealed = s.seal.Seal(s.sealed, sealNonce(s.number, last), s.plain, s.seal.head)
	_, err := s.sink.Write(s.sealed)
	s.plain, s.sealed = s.plain[:0], s.sealed[:0]
	s.number++
	return err
}

func (s *sealedSink) commit() error {
	if err := s.flush(true); err != nil {
		s.sink.abort()
		return err
	}
	return s.sink.commit()
}
