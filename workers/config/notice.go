package config

import "net/url"

// Notice is where a host says that it ends soon, such as a spot instance: a file that
// appears, or a URL that answers 200 with more than nothing and FALSE.
type Notice struct {
	File string `yaml:"file"`
	URL  string `yaml:"url"`
	// Headers go with the request.
	Headers map[string]string `yaml:"headers"`
	// Token is where to PUT for the token of Amazon's metadata service, if it needs one.
	Token string `yaml:"token"`
}

// NoticeFile is the file that appears, or empty.
func (c Config) NoticeFile() string { return c.path(c.Notice.File) }

// check reports what cannot be asked.
func (n Notice) check(r *report) {
	if n.File != "" && n.URL != "" || n.URL == "" && (len(n.Headers) > 0 || n.Token != "") {
		r.add("notice", "give file, or url with headers and token if it needs them")
	}
	for field, text := range map[string]string{"notice.url": n.URL, "notice.token": n.Token} {
		if u, err := url.Parse(text); text != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			r.add(field, "%.200q is not an http URL", text)
		}
	}
}
