package files

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/gpumux/gpumux/internal/columns"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/results"
)

func isFolder(in string) bool {
	info, err := os.Stat(in)
	return err == nil && info.IsDir()
}

// Many reports whether an --in means the files of a folder or of a pattern.
func Many(in string) bool {
	_, err := os.Stat(in)
	return isFolder(in) || err != nil && strings.ContainsAny(in, "*?[") && !strings.Contains(in, "://")
}

// Takes reports whether a file is among those that an --in means, or will be.
func Takes(in, file string) bool {
	if !Many(in) {
		return false
	}
	base, files, _ := dataset(in)
	file, _ = filepath.Abs(file)
	return slices.Contains(files, file) || isFolder(in) && strings.HasPrefix(file, base+"/")
}

// dataset lists the files of an --in that means many, in the order of their paths. The
// names of folders below the base are columns.
func dataset(in string) (base string, files []string, err error) {
	if isFolder(in) {
		base, _ = filepath.Abs(in)
		files, err = matching("--in", path.Join(in, "**/*"))
		files = slices.DeleteFunc(files, func(file string) bool { // as in Arrow's data sets
			inside := strings.TrimPrefix(file, base)
			return strings.Contains(inside, "/.") || strings.Contains(inside, "/_")
		})
	} else {
		base, _ = filepath.Abs(path.Dir(in[:strings.IndexAny(in, "*?[")] + "x"))
		files, err = matching("--in", in)
	}
	if err == nil && len(files) == 0 {
		err = usage("--in %s: no file is there; put a pattern in quotes, with **/ for all folders below", in)
	}
	return base, files, err
}

// inputsOf describes the files of an --in that means many. They are of one format.
func (s Source) inputsOf(ctx context.Context, in string) (inputs []items.Input, err error) {
	base, files, err := dataset(in)
	if err != nil {
		return nil, err
	}
	beside, err := partitions(base, files, s.Text)
	if err != nil {
		return nil, usage("--in %s: %v", in, err)
	}
	for i, file := range files {
		if err := names.Columns(file, s.Columns); err != nil {
			return nil, usage("--columns %v", err)
		}
		input, _, err := s.input(ctx, file)
		if err != nil {
			return nil, err
		}
		input.Beside = beside[i]
		inputs = append(inputs, input)
		if input.Format != inputs[0].Format || columns.FormatOf(file) != columns.FormatOf(files[0]) {
			return nil, usage("--in %s: %s and %s are of different formats; take those of one by a pattern, such as '**/*%s'", in, files[0],
				file, filepath.Ext(file))
		}
	}
	return inputs, nil
}

// noValue is how Hive writes null.
const noValue = "__HIVE_DEFAULT_PARTITION__"

// partitions are what the names of folders, such as year=2024, say of the files in them:
// objects of JSON. A column is numbers where all its values are whole numbers, as in
// Arrow's data sets, unless it is to be text.
func partitions(base string, files, text []string) (objects [][]byte, err error) {
	type partition struct{ name, value string }
	all, words := make([][]partition, len(files)), map[string]bool{}
	for _, name := range text {
		words[name] = true
	}
	for i, file := range files {
		for folder := range strings.SplitSeq(strings.TrimPrefix(path.Dir(file), base), "/") {
			name, value, ok := strings.Cut(folder, "=")
			if value, err = url.PathUnescape(value); ok && err == nil {
				_, err := strconv.ParseInt(value, 10, 64)
				words[name] = words[name] || err != nil && value != noValue
				all[i] = append(all[i], partition{name, value})
			}
		}
		if !slices.EqualFunc(all[i], all[0], func(a, b partition) bool { return a.name == b.name }) {
			return nil, fmt.Errorf("the folders of %s and %s have different columns", files[0], file)
		}
	}
	for _, own := range all {
		var object []byte
		for i, p := range own {
			object = append(results.AppendString(append(object, "{,"[min(i, 1)]), p.name), ':')
			switch {
			case p.value == noValue:
				object = append(object, "null"...)
			case words[p.name]:
				object = results.AppendString(object, p.value)
			default:
				number, _ := strconv.ParseInt(p.value, 10, 64)
				object = strconv.AppendInt(object, number, 10)
			}
		}
		if object != nil {
			object = append(object, '}')
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// matching lists the files that fit a pattern; **/ stands for any folders.
func matching(flag, pattern string) ([]string, error) {
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
