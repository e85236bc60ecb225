package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/objects"
)

func isURL(in string) bool { return strings.Contains(in, "://") }

func addressOf(in string) string {
	address, _, _ := strings.Cut(in, "?")
	return address
}

func isFolder(in string) bool {
	if isURL(in) {
		return strings.HasSuffix(addressOf(in), "/")
	}
	info, err := os.Stat(in)
	return err == nil && info.IsDir()
}

func isMany(in string) bool {
	if isURL(in) {
		return isFolder(in) || strings.Contains(addressOf(in), "*")
	}
	_, err := os.Stat(in)
	return isFolder(in) || err != nil && strings.ContainsAny(in, "*?[")
}

// takesFile reports whether a file is among those that an --in means, or will be.
func takesFile(in, file string) bool {
	if !isMany(in) || isURL(in) {
		return false
	}
	base, _ := filepath.Abs(in)
	file, _ = filepath.Abs(file)
	files, _ := dataset(context.Background(), in)
	among := slices.ContainsFunc(files, func(m member) bool { return m.path == file })
	return among || isFolder(in) && strings.HasPrefix(file, base+"/")
}

// member is a file of an --in that means many: its path or URL, and its path below the
// folder, with a slash before it.
type member struct{ path, below string }

// dataset lists the files of an --in that means many, in the order of their paths.
func dataset(ctx context.Context, in string) (files []member, err error) {
	if isURL(in) {
		files, err = membersOf(ctx, in)
	} else {
		base, pattern := in, path.Join(in, "**/*")
		if !isFolder(in) {
			base, pattern = in[:strings.LastIndexByte(in[:strings.IndexAny(in, "*?[")], '/')+1], in
		}
		base, _ = filepath.Abs(base)
		var found []string
		found, err = matchingFiles("--in", pattern)
		for _, file := range found {
			files = append(files, member{file, strings.TrimPrefix(file, base)})
		}
	}
	files = slices.DeleteFunc(files, func(m member) bool { // as in Arrow's data sets
		return strings.Contains(m.below, "/.") || strings.Contains(m.below, "/_")
	})
	return files, err
}

func membersOf(ctx context.Context, in string) (files []member, err error) {
	address := addressOf(in)
	fixed, _, _ := strings.Cut(address, "*")
	folder := fixed[:strings.LastIndexByte(fixed, '/')+1]
	pattern := cmp.Or(address[len(folder):], "**")
	urls, keys, err := objects.FilesOf(ctx, folder+in[len(address):])
	if err != nil {
		return nil, usage("--in: %v", err)
	}
	for i, key := range keys {
		if doublestar.MatchUnvalidated(pattern, key) {
			files = append(files, member{urls[i], "/" + key})
		}
	}
	return files, nil
}

// inputsOf describes the files of an --in that means many. They are of one format.
func (s source) inputsOf(ctx context.Context, in string) (inputs []items.Input, err error) {
	files, err := dataset(ctx, in)
	if err == nil && len(files) == 0 {
		err = usage("--in %s: no file is there; put a pattern in quotes, with **/ for all folders below; names that begin with . or _ do not count", in)
	}
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		input, _, err := s.input(ctx, file.path)
		if err != nil {
			return nil, err
		}
		if err := names.Columns(file.path, s.columns); err != nil {
			return nil, usage("--columns %v", err)
		}
		inputs = append(inputs, input)
		if input.Format != inputs[0].Format || names.Table(file.below) != names.Table(files[0].below) {
			return nil, usage("--in %s: %s and %s are of different formats; take those of one by a pattern, such as '**/*%s'", in, files[0].path,
				file.path, filepath.Ext(file.below))
		}
	}
	return inputs, nil
}

// matchingFiles lists the files that fit a pattern; **/ stands for any folders.
func matchingFiles(flag, pattern string) ([]string, error) {
	found, err := doublestar.FilepathGlob(pattern, doublestar.WithFailOnIOErrors())
	if errors.Is(err, doublestar.ErrBadPattern) {
		return nil, usage("%s %s: not a pattern: write it as 'images/*.png'", flag, pattern)
	} else if err != nil {
		return nil, usage("%s %s: %v", flag, pattern, err)
	}
	files := found[:0]
	for _, p := range found {
		info, err := os.Stat(p)
		if err != nil || info.IsDir() {
			continue // a broken link, or gone since
		}
		if p, err = filepath.Abs(p); err != nil {
			return nil, fmt.Errorf("%s %s: %w", flag, pattern, err)
		}
		if !utf8.ValidString(p) {
			return nil, usage("%s %s fits the file %q, whose name is not UTF-8, as an item has to be; rename it, or list the names in a form of your own", flag, pattern, p)
		}
		files = append(files, p)
	}
	slices.Sort(files)
	return files, nil
}
