package objects

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"gocloud.dev/blob"
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
	headSize      = int64(sealHead)
)

// Keys encrypt the objects of a store; package codec reads them from files. The methods
// may be called by many goroutines at once.
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
	errPlain  = errors.New("it is not encrypted, although this store has keys: somebody without keys wrote it; give keys to all " +
		"workers and clients of this store, and delete it")
)

// seal encrypts the segments of one object.
type seal struct {
	cipher.AEAD
	head []byte
}

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

// sealedHead is the beginning of an encrypted object. Its size and time show whether the
// object was replaced.
type sealedHead struct {
	*seal
	bytes    int64 // of the object as it lies there
	modified time.Time
	count    int64 // of segments
	size     int64 // of what they hold
}

// parseHead reads the beginning of an object. It fails with errPlain for one that is not
// encrypted, and with errBroken for one that is damaged.
func parseHead(keys Keys, start []byte, whole *blob.Reader) (*sealedHead, error) {
	if !bytes.HasPrefix(start, []byte(sealMagic)) {
		return nil, errPlain
	}
	if len(start) < sealHead {
		return nil, errBroken
	}
	s, err := openSeal(keys, start)
	if err != nil {
		return nil, err
	}
	body := whole.Size() - headSize
	count := (body + sealedSegment - 1) / sealedSegment
	size := body - count*sealTag
	if count < 1 || size < (count-1)*sealSegment {
		return nil, errBroken
	}
	return &sealedHead{s, whole.Size(), whole.ModTime(), count, size}, nil
}

// is reports whether an object is still the one that the head was read from.
func (h *sealedHead) is(whole *blob.Reader) bool {
	return whole.Size() == h.bytes && whole.ModTime().Equal(h.modified)
}

// unsealer decrypts a stretch.
type unsealer struct {
	from   io.Reader // from the next segment on
	head   *sealedHead
	number int64 // of the next segment
	skip   int   // bytes of the next segment before the stretch
	left   int64 // plain bytes of the stretch to come
	plain  []byte
	sealed []byte
}

// Read is io.Reader's.
func (u *unsealer) Read(data []byte) (int, error) {
	if u.left == 0 {
		return 0, io.EOF
	}
	for len(u.plain) == 0 {
		if err := u.readSegment(); err != nil {
			return 0, err
		}
	}
	n := copy(data, u.plain[:min(int64(len(u.plain)), u.left)])
	u.plain, u.left = u.plain[n:], u.left-int64(n)
	return n, nil
}

// readSegment decrypts a segment.
func (u *unsealer) readSegment() error {
	want := min(sealedSegment, u.head.bytes-segmentAt(u.number))
	if int64(cap(u.sealed)) < want {
		u.sealed = make([]byte, want)
	}
	if _, err := io.ReadFull(u.from, u.sealed[:want]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	// In place: a segment has been used before the next one is read.
	nonce := sealNonce(u.number, u.number == u.head.count-1)
	plain, err := u.head.Open(u.sealed[:0], nonce, u.sealed[:want], u.head.head)
	if err != nil {
		return fmt.Errorf("segment %d: %w", u.number, errBroken)
	}
	u.plain, u.skip = plain[u.skip:], 0
	u.number++
	return nil
}

// segmentAt is where a segment begins in the object.
func segmentAt(number int64) int64 { return headSize + number*sealedSegment }

// segmentsEnd is where the segments of the plain bytes up to end are over; all of them
// where it is negative.
func segmentsEnd(end int64) int64 {
	if end < 0 {
		return -1
	}
	return segmentAt((end + sealSegment - 1) / sealSegment)
}
