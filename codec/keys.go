package codec

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	// extension ends the names of key files.
	extension = ".key"
	// currentFile names the key that encrypts, in a folder with several.
	currentFile = "current"
	keyBytes    = 32
)

var keyID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Keys are AES-256 keys by ID: a Temporal payload codec, and the keys of a store.
type Keys struct {
	path    string
	current string
	masters map[string][]byte
	// payloads are the keys derived for payloads.
	payloads map[string]cipher.AEAD
}

// Load reads a key file, or a folder of them. ID.key holds 32 random bytes as 64
// hexadecimal digits or as base64; `openssl rand -hex 32` writes one. In a folder with
// several, the file "current" holds the ID of the key that encrypts. A key file that
// others may read or write is an error.
func Load(path string) (*Keys, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w; make one with `openssl rand -hex 32 > main%s`, see docs/encryption.md", err, extension)
	}
	k := &Keys{path: path, current: idOf(path), masters: map[string][]byte{}, payloads: map[string]cipher.AEAD{}}
	files := []string{path}
	if info.IsDir() {
		if files, k.current, err = readFolder(path); err != nil {
			return nil, err
		}
	}
	for _, file := range files {
		id := idOf(file)
		if k.masters[id], err = readKey(file, id); err != nil {
			return nil, err
		}
		if k.payloads[id], err = k.payloadCipher(id); err != nil {
			return nil, err
		}
	}
	if k.masters[k.current] == nil {
		return nil, fmt.Errorf("%s names the key %q, but there is no %s; there are %s", filepath.Join(path, currentFile), k.current,
			filepath.Join(path, k.current+extension), strings.Join(k.IDs(), ", "))
	}
	return k, nil
}

// idOf is the ID of the key in a file, or that a file names.
func idOf(name string) string { return strings.TrimSuffix(filepath.Base(name), extension) }

// readFolder lists key files and says which key encrypts.
func readFolder(dir string) (files []string, current string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, "", fmt.Errorf("read the keys: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); strings.HasSuffix(name, extension) && !strings.HasPrefix(name, ".") {
			files = append(files, filepath.Join(dir, name))
		}
	}
	if len(files) == 0 {
		return nil, "", fmt.Errorf("the folder of keys %s has no file that ends in %s; make one with `openssl rand -hex 32 > %s`",
			dir, extension, filepath.Join(dir, "main"+extension))
	}
	text, err := os.ReadFile(filepath.Join(dir, currentFile))
	current, last := strings.TrimSuffix(strings.TrimSpace(string(text)), extension), idOf(files[len(files)-1])
	switch {
	case err == nil && !keyID.MatchString(current):
		return nil, "", fmt.Errorf("%s holds %.80q, not the ID of a key; write the name of a key file without %s into it",
			filepath.Join(dir, currentFile), current, extension)
	case err == nil:
		return files, current, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, "", fmt.Errorf("read the keys: %w", err)
	case len(files) > 1:
		return nil, "", fmt.Errorf("the folder of keys %s has %d of them; write the ID of the one that encrypts, such as %s, into %s",
			dir, len(files), last, filepath.Join(dir, currentFile))
	}
	return files, last, nil
}

func readKey(file, id string) (key []byte, err error) {
	if !keyID.MatchString(id) {
		return nil, fmt.Errorf("the key file %s: its name makes no ID; use 1 to 63 letters, digits, dots, dashes and underscores, then %s",
			file, extension)
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	// The group may read it: a service's group, and that of a secret in Kubernetes.
	if wide := info.Mode().Perm() & 0o037; wide != 0 {
		return nil, fmt.Errorf("the key file %s has mode %04o, which lets others at it; chmod 0600 %s", file, info.Mode().Perm(), file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	text := strings.TrimSpace(string(data))
	if len(text) == 2*keyBytes {
		key, err = hex.DecodeString(text)
	} else {
		key, err = base64.StdEncoding.DecodeString(text)
	}
	if err != nil || len(key) != keyBytes {
		return nil, fmt.Errorf("the key file %s holds no key: write %d random bytes as %d hexadecimal digits or as base64 into it, "+
			"as `openssl rand -hex %d` does", file, keyBytes, 2*keyBytes, keyBytes)
	}
	return key, nil
}

// Current is the ID of the key that encrypts.
func (k *Keys) Current() string { return k.current }

// IDs lists the IDs of all keys, sorted.
func (k *Keys) IDs() []string { return slices.Sorted(maps.Keys(k.masters)) }

// Derive makes a key of 32 bytes. The error for an unknown ID is an *UnknownKeyError.
func (k *Keys) Derive(id string, salt []byte, purpose string) ([]byte, error) {
	master, known := k.masters[id]
	if !known {
		return nil, &UnknownKeyError{ID: id, Path: k.path, Known: k.IDs()}
	}
	return hkdf.Key(sha256.New, master, salt, purpose, keyBytes)
}

// UnknownKeyError says that something is encrypted with a key that was not read.
type UnknownKeyError struct {
	ID, Path string
	Known    []string
}

// Error says which file is missing where.
func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("it is encrypted with the key %q, which is not in %s (there: %s); put %s%s there and start again", e.ID, e.Path,
		strings.Join(e.Known, ", "), e.ID, extension)
}
