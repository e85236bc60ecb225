/*
 * A stand-in for libnvidia-ml.so.1. Every call reads the state from the file that the
 * environment variable GPUMUX_FAKE_NVML names, else from the file "state" beside the
 * library, so that a test can change it at any time.
 *
 *   init CODE                                      what nvmlInit returns
 *   driver VERSION
 *   cuda NUMBER
 *   shift NUMBER                                   added to the numbers of processes that hold memory, as seen from elsewhere
 *   lists all|zero|unknown|none                    how processes are listed: as they are, with 0 or unknown bytes, or not
 *   gpu UUID TOTAL FREE UTILIZATION CELSIUS MILLIWATTS LOST MIG NAME...
 *   reserved UUID BYTES                            what the driver keeps for itself, of a GPU above
 *   mig GPU-UUID INSTANCE UUID TOTAL FREE NAME...
 *   process UUID PID BYTES|unknown compute|mps|graphics
 *   slow UUID MILLISECONDS                         how long each call about it takes
 *   mode UUID NUMBER                               compute mode; default 0
 *   throttle UUID BITS                             why clocks are low; default 0
 *
 * In the folder FILE.d, a file named by a process number and holding lines "UUID BYTES" is
 * memory that this process holds while it lives: it is listed, and taken off FREE.
 *
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15 };
enum { MAX_DEVICES = 64, MAX_ROWS = 512 };

typedef unsigned long long u64;

/* The number that stands for a handle is an index into devices[] plus one. Rows never move
 * between calls as long as a test only changes them in place. */
typedef struct {
	char uuid[96], name[96], parent[96];
	u64 total, free, reserved;
	int instance, util, temp, power, lost, mig, mode, slow, throttle;
} device;

typedef struct { char uuid[96]; unsigned pid; u64 bytes; char type[16]; } process;

typedef struct {
	int init, cuda, shift, ndevices, nprocesses;
	char driver[80], lists[16];
	device devices[MAX_DEVICES];
	process processes[MAX_ROWS];
} state;

static device *find(state *s, const char *uuid) {
	for (int i = 0; i < s->ndevices; i++)
		if (!strcmp(s->devices[i].uuid, uuid)) return &s->devices[i];
	return NULL;
}

static void held(state *s, const char *dir, const char *pid) {
	char path[4608], uuid[96];
	u64 bytes;
	char *end;
	long n = strtol(pid, &end, 10);
	if (*end || n <= 0 || /* "123.tmp" is written and becomes "123" */ (kill((pid_t)n, 0) != 0 && errno == ESRCH)) return;
	snprintf(path, sizeof path, "%s/%s", dir, pid);
	FILE *f = fopen(path, "r");
	if (!f) return;
	while (fscanf(f, "%95s %llu", uuid, &bytes) == 2) {
		if (s->nprocesses == MAX_ROWS) break;
		process *p = &s->processes[s->nprocesses++];
		snprintf(p->uuid, sizeof p->uuid, "%s", uuid);
		strcpy(p->type, "compute");
		p->pid = (unsigned)(n + s->shift);
		p->bytes = bytes;
		device *d = find(s, uuid);
		if (d) d->free -= bytes < d->free ? bytes : d->free;
	}
	fclose(f);
}

static const char *state_file(void) {
	static char path[4096];
	const char *given = getenv("GPUMUX_FAKE_NVML");
	Dl_info self;
	char *slash;
	if (given) return given;
	if (!path[0] && dladdr((void *)state_file, &self) && (slash = strrchr(self.dli_fname, '/')))
		snprintf(path, sizeof path, "%.*s/state", (int)(slash - self.dli_fname), self.dli_fname);
	return path;
}

static state *load(void) {
	state *s = calloc(1, sizeof *s);
	char file[4096];
	ssize_t linked = readlink(state_file(), file, sizeof file - 1);
	if (linked >= 0) file[linked] = 0;
	else snprintf(file, sizeof file, "%s", state_file());
	FILE *f = fopen(file, "r");
	char line[512];
	if (!s) abort();
	if (!f) { s->init = 9; return s; }
	while (fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		u64 reserved;
		device d = {0};
		process p = {0};
		char word[32];
		if (sscanf(line, "init %d", &s->init) == 1) continue;
		if (sscanf(line, "driver %79s", s->driver) == 1) continue;
		if (sscanf(line, "cuda %d", &s->cuda) == 1) continue;
		if (sscanf(line, "shift %d", &s->shift) == 1) continue;
		if (sscanf(line, "lists %15s", s->lists) == 1) continue;
		int mode;
		device *of;
		if (sscanf(line, "mode %95s %d", d.uuid, &mode) == 2) {
			if ((of = find(s, d.uuid))) of->mode = mode;
			continue;
		}
		if (sscanf(line, "throttle %95s %d", d.uuid, &mode) == 2) {
			if ((of = find(s, d.uuid))) of->throttle = mode;
			continue;
		}
		if (sscanf(line, "slow %95s %d", d.uuid, &mode) == 2) {
			if ((of = find(s, d.uuid))) of->slow = mode;
			continue;
		}
		if (sscanf(line, "reserved %95s %llu", d.uuid, &reserved) == 2) {
			if ((of = find(s, d.uuid))) of->reserved = reserved;
			continue;
		}
		if (sscanf(line, "gpu %95s %llu %llu %d %d %d %d %d %95[^\n]", d.uuid, &d.total, &d.free, &d.util,
			   &d.temp, &d.power, &d.lost, &d.mig, d.name) == 9 && s->ndevices < MAX_DEVICES)
			s->devices[s->ndevices++] = d;
		else if (sscanf(line, "mig %95s %d %95s %llu %llu %95[^\n]", d.parent, &d.instance, d.uuid, &d.total,
				&d.free, d.name) == 6 && s->ndevices < MAX_DEVICES)
			s->devices[s->ndevices++] = d;
		else if (sscanf(line, "process %95s %u %31s %15s", p.uuid, &p.pid, word, p.type) == 4 && s->nprocesses < MAX_ROWS) {
			p.bytes = strcmp(word, "unknown") ? strtoull(word, NULL, 10) : ~0ULL;
			s->processes[s->nprocesses++] = p;
		}
	}
	fclose(f);
	char dir[4200];
	snprintf(dir, sizeof dir, "%s.d", file);
	DIR *folder = opendir(dir);
	if (folder) {
		struct dirent *entry;
		while ((entry = readdir(folder))) held(s, dir, entry->d_name);
		closedir(folder);
	}
	return s;
}

/* at gives the row of a handle, or sets the code that every call on it returns. */
static device *at(state *s, void *handle, int *code) {
	size_t i = (size_t)handle;
	*code = OK;
	if (i == 0 || i > (size_t)s->ndevices) { *code = INVALID; return NULL; }
	device *d = &s->devices[i - 1];
	device *g = d->parent[0] ? find(s, d->parent) : d;
	struct timespec rest = {g ? g->slow / 1000 : 0, g ? g->slow % 1000 * 1000000L : 0};
	while (nanosleep(&rest, &rest) && errno == EINTR) {} /* a signal of this process ends no driver's call */
	if (g && g->lost) *code = LOST;
	return d;
}

static void *handle_of(state *s, device *d) { return (void *)(size_t)(d - s->devices + 1); }

#define ON_DEVICE(...) do { int code; state *s = load(); device *d = at(s, dev, &code); \
	if (code == OK) { __VA_ARGS__ } (void)d; free(s); return code; } while (0)

int nvmlInit_v2(void) { state *s = load(); int code = s->init; free(s); return code; }
int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int code) {
	switch (code) {
	case OK: return "Success";
	case INVALID: return "Invalid Argument";
	case UNSUPPORTED: return "Not Supported";
	case NOT_FOUND: return "Not Found";
	case 9: return "Driver Not Loaded";
	case TIMEOUT: return "Timeout";
	case LOST: return "GPU is lost";
	case 18: return "Driver/library version mismatch";
	}
	return "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *out, unsigned n) { state *s = load(); snprintf(out, n, "%s", s->driver); free(s); return OK; }
int nvmlSystemGetCudaDriverVersion(int *out) { state *s = load(); *out = s->cuda; free(s); return OK; }

int nvmlDeviceGetCount_v2(unsigned *out) {
	state *s = load();
	*out = 0;
	for (int i = 0; i < s->ndevices; i++) *out += !s->devices[i].parent[0];
	free(s);
	return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
	state *s = load();
	int code = INVALID;
	for (int i = 0; i < s->ndevices; i++) {
		device *d = &s->devices[i];
		if (d->parent[0] || index--) continue;
		*out = handle_of(s, d);
		code = d->lost ? LOST : OK;
		break;
	}
	free(s);
	return code;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
	state *s = load();
	device *d = find(s, uuid);
	int code = !d ? NOT_FOUND : d->lost ? LOST : OK;
	if (d) *out = handle_of(s, d);
	free(s);
	return code;
}

int nvmlDeviceGetUUID(void *dev, char *out, unsigned n) { ON_DEVICE(snprintf(out, n, "%s", d->uuid);); }
int nvmlDeviceGetName(void *dev, char *out, unsigned n) { ON_DEVICE(snprintf(out, n, "%s", d->name);); }

typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char id_string[32]; } pci;

static void pci_of(state *s, device *d, pci *p) {
	int number = (int)(d - s->devices);
	memset(p, 0, sizeof *p);
	p->bus = (unsigned)number + 1;
	snprintf(p->legacy, sizeof p->legacy, "0000:%02X:00.0", p->bus);
	snprintf(p->id_string, sizeof p->id_string, "00000000:%02X:00.0", p->bus);
}

int nvmlDeviceGetPciInfo_v3(void *dev, pci *p) { ON_DEVICE(pci_of(s, d, p);); }
int nvmlDeviceGetCudaComputeCapability(void *dev, int *major, int *minor) { ON_DEVICE(*major = 9; *minor = 0;); }

typedef struct { unsigned pid; u64 bytes; unsigned gi, ci; } row;

static int rows(void *dev, unsigned *count, void *out, const char *type) {
	ON_DEVICE(
		unsigned room = *count; unsigned n = 0;
		for (int i = 0; i < s->nprocesses; i++) {
			process *p = &s->processes[i];
			if (strcmp(p->uuid, d->uuid) || strcmp(p->type, type) || !strcmp(s->lists, "none")) continue;
			if (!strcmp(s->lists, "zero")) p->bytes = 0;
			if (!strcmp(s->lists, "unknown")) p->bytes = ~0ULL;
			if (n < room) ((row *)out)[n] = (row){p->pid, p->bytes, ~0u, ~0u};
			n++;
		}
		*count = n;
		if (n > room) code = TOO_SMALL;
	);
}

int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned n) { (void)pid; (void)out; (void)n; return NOT_FOUND; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *dev, unsigned *n, void *out) { return rows(dev, n, out, "compute"); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *dev, unsigned *n, void *out) { return rows(dev, n, out, "mps"); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *dev, unsigned *n, void *out) { return rows(dev, n, out, "graphics"); }

typedef struct { unsigned version; u64 total, reserved, free, used; } memory2;
int nvmlDeviceGetMemoryInfo_v2(void *dev, memory2 *m) {
	if (m->version != (sizeof *m | 2u << 24)) return 25;
	ON_DEVICE(m->total = d->total; m->reserved = d->reserved; m->free = d->free; m->used = d->total - d->reserved - d->free;);
}

typedef struct { unsigned gpu, memory; } rates;
int nvmlDeviceGetUtilizationRates(void *dev, rates *r) { ON_DEVICE(if (d->parent[0]) code = UNSUPPORTED; else { r->gpu = (unsigned)d->util; r->memory = 0; }); }
int nvmlDeviceGetTemperature(void *dev, int sensor, unsigned *t) { (void)sensor; ON_DEVICE(if (d->parent[0]) code = UNSUPPORTED; else *t = (unsigned)d->temp;); }
int nvmlDeviceGetPowerUsage(void *dev, unsigned *mw) { ON_DEVICE(if (d->parent[0]) code = UNSUPPORTED; else *mw = (unsigned)d->power;); }
int nvmlDeviceGetTotalEnergyConsumption(void *dev, u64 *mj) {
	struct timespec now; clock_gettime(CLOCK_MONOTONIC, &now);
	ON_DEVICE(if (d->parent[0]) code = UNSUPPORTED; else *mj = (u64)((double)d->power * ((double)now.tv_sec + (double)now.tv_nsec / 1e9)););
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *dev, u64 *why) { ON_DEVICE(if (d->parent[0]) code = UNSUPPORTED; else *why = (u64)d->throttle;); }
/* Every two GPUs reach each other through the host's sockets: NVML_TOPOLOGY_SYSTEM, NVML_P2P_STATUS_NOT_SUPPORTED. */
int nvmlDeviceGetTopologyCommonAncestor(void *dev, void *other, int *level) { (void)other; ON_DEVICE(*level = 50;); }
int nvmlDeviceGetP2PStatus(void *dev, void *other, int what, int *status) { (void)other; (void)what; ON_DEVICE(*status = 5;); }
int nvmlDeviceGetComputeMode(void *dev, int *mode) { ON_DEVICE(*mode = d->mode;); }
int nvmlDeviceGetMigMode(void *dev, unsigned *now, unsigned *next) { ON_DEVICE(*now = *next = (unsigned)d->mig;); }
int nvmlDeviceGetMaxMigDeviceCount(void *dev, unsigned *n) { ON_DEVICE(*n = 7;); }
int nvmlDeviceGetMigDeviceHandleByIndex(void *dev, unsigned index, void **out) {
	ON_DEVICE(
		code = NOT_FOUND;
		for (int i = 0; i < s->ndevices; i++) {
			device *m = &s->devices[i];
			if (strcmp(m->parent, d->uuid) || m->instance != (int)index) continue;
			*out = handle_of(s, m);
			code = OK;
		}
	);
}
