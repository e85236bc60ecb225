package codec

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	one = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	two = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100"
)

// write makes a folder of files.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func load(t testing.TB, files map[string]string) *Keys {
	t.Helper()
	k, err := Load(write(t, files))
	require.NoError(t, err)
	return k
}

func TestLoad_FilesAndFolders(t *testing.T) {
	dir := write(t, map[string]string{"a.key": one + "\n", "b.key": two, "current": "b\n", "README": "not a key", "..data.key": "a link of a mount"})
	folder, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, "b", folder.Current())
	require.Equal(t, []string{"a", "b"}, folder.IDs())
	file, err := Load(filepath.Join(dir, "a.key"))
	require.NoError(t, err)
	require.Equal(t, "a", file.Current())
	require.Equal(t, "only", load(t, map[string]string{"only.key": one}).Current())

	raw := make([]byte, 32)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.key"), []byte(base64.StdEncoding.EncodeToString(raw)), 0o440))
	_, err = Load(dir)
	require.NoError(t, err, "base64, and readable by the group")
}

func TestLoad_SaysWhatIsWrongWithWhichFile(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no keys":             {map[string]string{"notes": ""}, "has no file that ends in .key"},
		"none is current":     {map[string]string{"a.key": one, "b.key": two}, "has 2 of them; write the ID of the one that encrypts, such as b, into"},
		"current is unknown":  {map[string]string{"a.key": one, "current": "z"}, `names the key "z", but there is no`},
		"current is nonsense": {map[string]string{"a.key": one, "current": "two words"}, `holds "two words", not the ID of a key`},
		"short":               {map[string]string{"a.key": one[:62]}, "a.key holds no key: write 32 random bytes"},
		"no digits":           {map[string]string{"a.key": strings.Repeat("x", 64)}, "a.key holds no key"},
		"empty":               {map[string]string{"a.key": ""}, "a.key holds no key"},
		"large":               {map[string]string{"a.key": strings.Repeat("0", 5000)}, "a.key holds no key"},
		"no name":             {map[string]string{"a b.key": one}, "a b.key: its name makes no ID"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(write(t, c.files))
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), one[:62], "a key is never told")
		})
	}
	missing := filepath.Join(t.TempDir(), "none")
	_, err := Load(missing)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, missing)
}

func TestLoad_RefusesKeysThatOthersReach(t *testing.T) {
	dir := write(t, map[string]string{"a.key": one})
	file := filepath.Join(dir, "a.key")
	for mode, good := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o440: true, 0o640: true, 0o644: false, 0o604: false, 0o660: false, 0o602: false} {
		require.NoError(t, os.Chmod(file, mode))
		_, err := Load(dir)
		if good {
			require.NoError(t, err, "%04o", mode)
		} else {
			require.ErrorContains(t, err, "chmod 0600 "+file, "%04o", mode)
		}
	}
}

func TestDerive_OneKeyPerPurposeAndSalt(t *testing.T) {
	k := load(t, map[string]string{"a.key": one, "b.key": two, "current": "a"})
	seen := map[string]bool{}
	for _, id := range k.IDs() {
		for _, salt := range []string{"", "salt"} {
			for _, purpose := range []string{"x", "y"} {
				key, err := k.Derive(id, []byte(salt), purpose)
				require.NoError(t, err)
				again, err := k.Derive(id, []byte(salt), purpose)
				require.NoError(t, err)
				require.Equal(t, key, again)
				require.Len(t, key, 32)
				require.False(t, seen[string(key)])
				seen[string(key)] = true
			}
		}
	}
	_, err := k.Derive("z", nil, "x")
	var unknown *UnknownKeyError
	require.ErrorAs(t, err, &unknown)
	require.ErrorContains(t, err, `"z", which is not in `)
	require.ErrorContains(t, err, "(there: a, b); put z.key there")
}
