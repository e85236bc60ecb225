package columns

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/text"
)

// Schema declares the columns of values.
type Schema []arrow.Field

// ReadSchema returns the columns of a Parquet file, but for the index and the fault of
// results. It closes the file. One that is damaged, or that could not be written, is a
// *gpumux.SourceError.
func ReadSchema(from *os.File, name string) (s Schema, err error) {
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return nil, err
	}
	file := &ranged{from: from, size: info.Size()}
	s = Schema{}
	err = file.blame(context.Background(), name, func() error {
		t, err := openTable(file, true)
		if err == nil {
			_, err = choose(t.names(), nil, name)
		}
		if err != nil {
			return err
		}
		for _, f := range t.Manifest.Fields {
			if t := f.Field.Type; t.ID() != arrow.FIXED_SIZE_LIST && strings.Contains(t.String(), "fixed_size_list") { // pqarrow writes none that is null
				return &gpumux.SourceError{Problem: "column " + f.Field.Name + " is " + named.Replace(t.String()), Hint: "within other types lists may have any length alone"}
			}
			if !slices.Contains([]string{indexColumn, faultColumn, messageColumn}, f.Field.Name) {
				s = append(s, *f.Field)
			}
		}
		_, err = newParquetWriter(io.Discard, listed(arrow.NewSchema(s, nil)))
		return err
	})
	return s, err
}

// fit makes an array of cells. Those that do not fit become null, and misfit hears why.
func (c column) fit(cells []cell, t arrow.DataType, misfit func(row int, why error) error) (arrow.Array, error) {
	bytewise := c.kind != otherKind
	var failed error
	refuse := func(row int, why error) {
		cells[row], failed = cell{}, cmp.Or(failed, misfit(row, why))
	}
	for row, x := range cells {
		if c.takes(x) || x.kind == nullKind && c.Nullable {
			continue
		}
		if err := suits(c.Field, c.json(x)); err != nil {
			refuse(row, err)
		} else {
			bytewise = false
		}
	}
	all, err := c.build(cells, t, bytewise)
	if err == nil || failed != nil {
		return all, failed
	}
	for row, x := range cells { // Arrow leaves half a value behind an error
		if _, err := c.build(cells[row:row+1], t, false); err != nil {
			refuse(row, unlike(c.Field, c.json(x)))
		}
	}
	all, err = c.build(cells, t, false)
	return all, cmp.Or(failed, err)
}

func unlike(f arrow.Field, value []byte) error {
	return fmt.Errorf("%s is %s, and is to be %s", f.Name, text.Beginning(value), named.Replace(f.Type.String()))
}

// named takes from the name of a type what means nothing here.
var named = strings.NewReplacer(", nullable", "", " nullable", "")

// suits returns why JSON is no value of a field. The rest is left to Arrow, which takes
// numbers in texts and as truths, lists of any length and unknown fields.
func suits(f arrow.Field, json []byte) (err error) {
	within := func(member arrow.Field, part []byte) bool {
		member.Name, member.Nullable = f.Name+"."+member.Name, member.Nullable && member.Type.ID() != arrow.FIXED_SIZE_LIST
		err = suits(member, part)
		return err == nil
	}
	t, first := f.Type, json[0]
	_, nonFinite := text.NonFinite[string(json)]
	switch {
	case first == 'n' && f.Nullable:
		return nil
	case first == 'n', (t.ID() == arrow.STRUCT) != (first == '{'), arrow.IsListLike(t.ID()) != (first == '['),
		(t.ID() == arrow.BOOL) != (first == 't' || first == 'f'), first == '"' && nonFinite != (arrow.IsInteger(t.ID()) || arrow.IsFloating(t.ID())):
		return unlike(f, json)
	case first == '{':
		t := t.(*arrow.StructType)
		text.EachField(json, func(name string, _ []byte) bool {
			if _, known := t.FieldByName(name); !known {
				err = fmt.Errorf("%s has a field %q, and is to be %s", f.Name, name, named.Replace(t.String()))
			}
			return err == nil
		})
		for _, member := range t.Fields() {
			if err == nil {
				within(member, []byte(cmp.Or(string(text.FieldOf(json, member.Name)), "null")))
			}
		}
	case first == '[':
		count := 0
		text.EachEntry(json, func(entry []byte) bool { count++; return within(t.(arrow.ListLikeType).ElemField(), entry) })
		if fixed, ok := t.(*arrow.FixedSizeListType); ok && err == nil && count != int(fixed.Len()) {
			return fmt.Errorf("%s has %d elements, and is to be %s", f.Name, count, named.Replace(t.String()))
		}
	}
	return err
}
