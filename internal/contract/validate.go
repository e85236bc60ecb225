package contract

import "github.com/gpumux/gpumux"

// An input has a Validate only where a wrong one would do harm: endless work, another's
// queue, another's object. The error is an *InputError that names every mistake, or nil.

// Validate refuses a chunk whose items are too many, or are not there.
func (c Chunk) Validate() error {
	bad := gpumux.InputError{What: "chunk"}
	n := c.Work.Len()
	if n < 1 || n > gpumux.MaxChunk {
		bad.Add("runs", "a chunk of %d items; it has 1 to %d", n, gpumux.MaxChunk)
	}
	ways := 0
	for _, has := range []bool{c.Items != nil, c.Source != nil, c.Range != nil, c.Values != nil} {
		if has {
			ways++
		}
	}
	switch {
	case ways != 1:
		bad.Add("items", "give one of items, source, range and values")
	case c.Items != nil && (int64(len(c.Items)) != n || c.List != nil):
		bad.Add("items", "a chunk of %d items carries %d", n, len(c.Items))
	}
	return bad.Err()
}

func (c Handoff) Validate() error {
	bad := gpumux.InputError{What: "state of a map"}
	if c.Carry == nil {
		bad.Add("carry", "is missing")
	}
	return bad.Err()
}

func (in PageInput) Validate() error {
	bad := gpumux.InputError{What: "page"}
	if in.From < 0 || in.Limit < 0 {
		bad.Add("from", "byte %d, and at most %d results; neither is below 0", in.From, in.Limit)
	}
	if in.Output == "" {
		bad.Add("output", "is missing; give the Output of the summary of a map that has completed")
	}
	return bad.Err()
}
