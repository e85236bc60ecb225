// Package rpccodec encodes what gpumux's own processes send to Temporal and decodes what
// they get, at the connection.
//
// It owns where a codec runs, for how long one that fails is asked again, and what
// becomes of payloads that nobody here can read. So a codec that is away looks as a
// Temporal server that is: workflow code never sees its errors. It never looks into a
// payload. A call ends with its context.
//
// Services with codecs of their own use package codec instead.
package rpccodec
