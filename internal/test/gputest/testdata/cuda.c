/*
 * A stand-in for libcuda.so.1: memory that only the NVML stand-in beside it knows of. It reads these lines of the state file,
 * which lies beside the library under the name "state":
 *
 *   gpu UUID TOTAL FREE ... , mig PARENT N UUID TOTAL FREE ...      the devices
 *   mode UUID NUMBER              compute mode: 3 lets one process have a context, 2 none
 *   sick UUID CALL CODE           init, context, alloc or copy on the device returns the code; -1 never returns
 *
 * mps.c, which is compiled with it, makes the process a client of the stand-in for MPS. A module has two kernels: illegal ends with
 * error 700, and spin never ends.
 *
 * It never takes a time or a size from a real device.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 1, MEMORY = 2, UNINITIALIZED = 3, UNAVAILABLE = 46, NO_DEVICE = 100, ORDINAL = 101, NO_CONTEXT = 201 };
enum { MAX_BLOCKS = 4096, MAX_DEVICES = 64, EXCLUSIVE = 3, PROHIBITED = 2 };

typedef unsigned long long u64;
typedef struct { char uuid[96]; u64 total, context; int mode, init, fails[3]; } device;
typedef struct { int device; u64 bytes; char *data; } block;
enum { CONTEXT, ALLOC, COPY };

/* A context is as large as on the largest devices. */
static const u64 context = 528ull << 20;
static device devices[MAX_DEVICES];
static block blocks[MAX_BLOCKS];
static int visible, begun, nblocks;
static device *current;
/* kernel is the one that was launched last; sticky is the error with which one ended that ruined the context. */
static int kernel, sticky;
enum { ILLEGAL = 700, SPIN = -1 };

static const char *state_file(void)
{
	static char path[4096];
	Dl_info self;
	char *slash;

	if (!path[0] && dladdr((void *)state_file, &self) && (slash = strrchr(self.dli_fname, '/')))
		snprintf(path, sizeof path, "%.*s/state", (int)(slash - self.dli_fname), self.dli_fname);
	return path;
}

/* read_state lists the devices of the state in order, or takes what has changed of those that are visible. */
static int read_state(device *out)
{
	FILE *file = fopen(state_file(), "r");
	char line[512], uuid[96], call[16];
	u64 total, free;
	int n = 0, code;

	if (!file)
		return 0;
	while (fgets(line, sizeof line, file)) {
		if ((sscanf(line, "gpu %95s %llu %llu", uuid, &total, &free) == 3 || sscanf(line, "mig %*s %*d %95s %llu %llu", uuid, &total, &free) == 3) &&
		    n < MAX_DEVICES) {
			memset(&out[n], 0, sizeof out[n]);
			strcpy(out[n].uuid, uuid);
			out[n++].total = total;
		}
		for (int i = 0; i < n; i++) {
			if (sscanf(line, "mode %95s %d", uuid, &code) == 2 && !strcmp(uuid, out[i].uuid))
				out[i].mode = code;
			if (sscanf(line, "sick %95s %15s %d", uuid, call, &code) != 3 || strcmp(uuid, out[i].uuid))
				continue;
			if (!strcmp(call, "init")) out[i].init = code;
			if (!strcmp(call, "context")) out[i].fails[CONTEXT] = code;
			if (!strcmp(call, "alloc")) out[i].fails[ALLOC] = code;
			if (!strcmp(call, "copy")) out[i].fails[COPY] = code;
		}
	}
	fclose(file);
	return n;
}

static int failure(int code)
{
	while (code < 0)
		pause();
	return code;
}

/* ruin makes an error sticky: for this process, or for all clients of its MPS server. */
static int ruin(int code)
{
	if (code >= ILLEGAL && mps >= 0)
		return mps_ask("fault %d\n", code);
	if (code >= ILLEGAL)
		sticky = code;
	return code;
}

/* now is the code that a call on the device returns at this moment. */
static int now(device *d, int call)
{
	device all[MAX_DEVICES];
	int code = sticky ? sticky : mps_status();

	if (code)
		return code;
	for (int i = read_state(all); i-- > 0;)
		if (!strcmp(all[i].uuid, d->uuid))
			return ruin(failure(all[i].fails[call]));
	return NO_DEVICE;
}

static const char *uuid_of(int ordinal) { return devices[ordinal].uuid; }

/* own is what this process holds of a device, limit what its MPS server lets it hold, at most the device. */
static u64 own(device *d)
{
	u64 sum = d->context;

	for (int i = 0; i < nblocks; i++)
		sum += blocks[i].device == (int)(d - devices) ? blocks[i].bytes : 0;
	return sum;
}

static u64 limit(device *d)
{
	int at = (int)(d - devices);
	u64 mine, theirs, least = d->total;

	if (mps < 0)
		return least;
	mine = mps_entry(getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), d->uuid, at, visible, uuid_of);
	theirs = mps_entry(mps_limits, d->uuid, at, visible, uuid_of);
	if (theirs && theirs < least)
		least = theirs;
	return mine && mine < least ? mine : least;
}

/* tell writes what this process holds to where the NVML stand-in reads it. */
static int tell(void)
{
	char folder[4096], path[4200], tmp[4200];
	FILE *file;
	ssize_t n = readlink(state_file(), folder, sizeof folder - 4);

	if (n < 0)
		return 999;
	strcpy(folder + n, ".d");
	snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
	snprintf(tmp, sizeof tmp, "%s/.%d", folder, (int)getpid());
	if (!(file = fopen(tmp, "w")))
		return 999;
	for (int d = 0; d < visible; d++) {
		u64 sum = own(&devices[d]);
		if (sum)
			fprintf(file, "%s %llu\n", devices[d].uuid, sum);
	}
	return fclose(file) || rename(tmp, path) ? 999 : OK;
}

/* others is what the processes that live, without this one, hold of a device; they counts them. */
static u64 others(device *d, int *they)
{
	char folder[4096], path[4400], uuid[96];
	u64 sum = 0, bytes;
	struct dirent *entry;
	ssize_t n = readlink(state_file(), folder, sizeof folder - 4);
	DIR *list;

	*they = 0;
	if (n < 0)
		return 0;
	strcpy(folder + n, ".d");
	if (!(list = opendir(folder)))
		return 0;
	while ((entry = readdir(list))) {
		long pid = strtol(entry->d_name, NULL, 10);
		if (pid <= 0 || pid == getpid() || (kill((pid_t)pid, 0) && errno == ESRCH))
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
		FILE *file = fopen(path, "r");
		while (file && fscanf(file, "%95s %llu", uuid, &bytes) == 2)
			if (!strcmp(uuid, d->uuid)) {
				sum += bytes;
				++*they;
			}
		if (file)
			fclose(file);
	}
	closedir(list);
	return sum;
}

int cuInit(unsigned flags)
{
	static device all[MAX_DEVICES];
	const char *chosen = getenv("CUDA_VISIBLE_DEVICES");
	char list[4096], *word, *rest;
	int n = read_state(all);

	if (flags)
		return INVALID;
	visible = 0;
	snprintf(list, sizeof list, "%s", chosen ? chosen : "");
	if (!chosen)
		for (; visible < n; visible++)
			devices[visible] = all[visible];
	for (word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		int at = 0, number = word[0] >= '0' && word[0] <= '9';
		while (at < n && (number ? at != atoi(word) : strcmp(all[at].uuid, word) != 0))
			at++;
		if (at == n)
			break; /* as CUDA does: what follows is not seen either */
		devices[visible++] = all[at];
	}
	for (int i = 0; i < visible; i++)
		if (devices[i].init)
			return failure(devices[i].init);
	int code = visible > 0 ? mps_join() : NO_DEVICE;
	begun = !code;
	return code;
}

int cuDeviceGetCount(int *count) { *count = visible; return begun ? OK : UNINITIALIZED; }

int cuDeviceGet(int *out, int ordinal)
{
	*out = ordinal;
	return !begun ? UNINITIALIZED : ordinal < visible ? OK : ORDINAL;
}

/* The UUID's 16 bytes are those of its text. */
int cuDevicePrimaryCtxRetain(void **made, int ordinal)
{
	device *d = &devices[ordinal];
	int they, code = begun ? now(d, CONTEXT) : UNINITIALIZED;
	u64 taken = others(d, &they);

	if (code)
		return code;
	if (d->mode == EXCLUSIVE && mps < 0 && mps_daemon)
		return MPS_CONNECTION;
	if (d->mode == PROHIBITED || (d->mode == EXCLUSIVE && they > 0 && mps < 0))
		return UNAVAILABLE;
	if (!d->context && (taken + context > d->total || context > limit(d)))
		return MEMORY;
	d->context = context;
	*made = d;
	return tell();
}

int cuCtxSetCurrent(void *chosen)
{
	current = chosen;
	return chosen ? OK : NO_CONTEXT;
}

int cuCtxGetCurrent(void **out) { *out = current; return begun ? OK : UNINITIALIZED; }

int cuMemAlloc_v2(u64 *pointer, size_t bytes)
{
	int free = 0, they, code = current ? now(current, ALLOC) : NO_CONTEXT;
	u64 taken;

	if (code)
		return code;
	taken = others(current, &they) + own(current);
	while (free < nblocks && blocks[free].bytes)
		free++;
	if (free == MAX_BLOCKS || taken + bytes > current->total || own(current) + bytes > limit(current))
		return MEMORY;
	if (free == nblocks)
		nblocks++;
	/* Only small blocks have contents. */
	blocks[free] = (block){(int)(current - devices), bytes, bytes <= 16u << 20 ? malloc(bytes) : NULL};
	*pointer = (u64)free + 1;
	return tell();
}

int cuMemFree_v2(u64 pointer)
{
	if (pointer < 1 || pointer > (u64)nblocks)
		return INVALID;
	free(blocks[pointer - 1].data);
	blocks[pointer - 1] = (block){0};
	return tell();
}

/* Memory that moves by itself is attributed to no process. */
int cuMemAllocManaged(u64 *pointer, size_t bytes, unsigned flags)
{
	(void)bytes;
	*pointer = 1ull << 40;
	return current ? flags == 1 ? OK : INVALID : NO_CONTEXT;
}

int cuMemsetD8_v2(u64 pointer, unsigned char value, size_t bytes)
{
	(void)pointer, (void)value, (void)bytes;
	return current ? OK : NO_CONTEXT;
}

static int copy(u64 pointer, void *host, size_t bytes, int up)
{
	block *b = pointer >= 1 && pointer <= (u64)nblocks ? &blocks[pointer - 1] : NULL;
	int code = current ? now(current, COPY) : NO_CONTEXT;

	if (code)
		return code;
	if (!b || !b->data || bytes > b->bytes)
		return INVALID;
	memcpy(up ? b->data : host, up ? host : b->data, bytes);
	return OK;
}

int cuMemcpyHtoD_v2(u64 to, const void *from, size_t bytes) { return copy(to, (void *)from, bytes, 1); }
int cuMemcpyDtoH_v2(void *to, u64 from, size_t bytes) { return copy(from, to, bytes, 0); }

int cuMemGetInfo_v2(size_t *left, size_t *total)
{
	int they;
	u64 taken;

	if (!current)
		return NO_CONTEXT;
	taken = others(current, &they) + own(current);
	*total = current->total;
	*left = taken < current->total ? current->total - taken : 0;
	taken = limit(current) - (own(current) < limit(current) ? own(current) : limit(current));
	if (taken < *left)
		*left = taken;
	return OK;
}

int cuModuleLoadData(void **module, const void *image) { *module = current; return image ? OK : INVALID; }

int cuModuleGetFunction(void **function, void *module, const char *name)
{
	*function = (void *)(long)(!strcmp(name, "spin") ? SPIN : ILLEGAL);
	return module ? OK : INVALID;
}

int cuLaunchKernel(void *function)
{
	kernel = (int)(long)function;
	return !current ? NO_CONTEXT : kernel == SPIN && mps >= 0 ? mps_ask("busy\n") : OK;
}

int cuCtxSynchronize(void)
{
	int code = !current ? NO_CONTEXT : sticky ? sticky : mps_status();

	if (!code && kernel > 0)
		code = ruin(kernel);
	if (!code && kernel == SPIN && mps < 0)
		code = failure(SPIN);
	else if (!code && kernel == SPIN)
		for (; !code; code = mps_status())
			usleep(2000);
	kernel = 0;
	return code;
}

int cuGetErrorString(int code, const char **text)
{
	switch (code) {
	case OK: *text = "no error"; break;
	case INVALID: *text = "invalid argument"; break;
	case MEMORY: *text = "out of memory"; break;
	case UNINITIALIZED: *text = "initialization error"; break;
	case UNAVAILABLE: *text = "CUDA-capable device(s) is/are busy or unavailable"; break;
	case NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
	case ORDINAL: *text = "invalid device ordinal"; break;
	case NO_CONTEXT: *text = "invalid device context"; break;
	case 214: *text = "uncorrectable ECC error encountered"; break;
	case ILLEGAL: *text = "an illegal memory access was encountered"; break;
	case 802: *text = "system not yet initialized"; break;
	case 803: *text = "system has unsupported display driver / cuda driver combination"; break;
	case MPS_CONNECTION: *text = "MPS client failed to connect to the MPS control daemon or the MPS server"; break;
	case MPS_RPC: *text = "the remote procedural call between the MPS server and the MPS client failed"; break;
	case 807: *text = "MPS server is not ready to accept new MPS client requests"; break;
	case 808: *text = "the hardware resources required to create MPS client have been exhausted"; break;
	case 810: *text = "the MPS client has been terminated by the server"; break;
	case 999: *text = "unknown error"; break;
	default: *text = NULL; return INVALID;
	}
	return OK;
}
