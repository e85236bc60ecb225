package starter

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/converter"
)

func (s *Starter) converter() converter.DataConverter {
	if s.Converter != nil {
		return s.Converter
	}
	return converter.GetDefaultDataConverter()
}

// sealed reports whether a payload could not be read for want of the codec or the key that it was made with.
func sealed(err error) bool { return errors.Is(err, converter.ErrEncodingIsNotSupported) }

// unseal adds to such an error what to do.
func unseal(err error) error {
	if !sealed(err) {
		return err
	}
	return fmt.Errorf("%w; it was made with a codec, or a key, that is not here: give the workers' keys with --keys or GPUMUX_KEYS", err)
}
