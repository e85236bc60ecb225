// Package codec encrypts what gpumux gives to Temporal and to the store.
//
// It owns the key files, the encryption of payloads, and the HTTP server through which
// the Web UI and `temporal` read them. It never writes a key or logs a payload. Keys
// never change once they are read, and nothing runs between calls.
//
// A Go service whose workflows map over gpumux workers uses the same keys like this:
//
//	keys, err := codec.Load("/etc/gpumux/keys")
//	…
//	options := client.Options{…}
//	codec.Apply(&options, keys)
//	c, err := client.Dial(options)
package codec
