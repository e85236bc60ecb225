// Package codec keeps what gpumux hands to Temporal and to the store from everybody who has no key.
//
// It owns the files that keys lie in, how a payload is encrypted (AES-256-GCM under a key that is named in the payload), and the
// HTTP server through which the Web UI and `temporal` read payloads. It never writes a key, never logs a payload, and knows
// nothing of maps; objects are encrypted by package store with keys that are derived here. Keys never change once they are read,
// and nothing runs between calls.
//
// A Go service that has its workflows map over gpumux workers uses the same keys like this:
//
//	keys, err := codec.Load("/etc/gpumux/keys")
//	…
//	options := client.Options{…}
//	codec.Apply(&options, keys)
//	c, err := client.Dial(options)
package codec
