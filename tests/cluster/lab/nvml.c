/* Stands in for libnvidia-ml.so.1 on a lab node: answers what pynvml asks from the file /run/lab/gpus, read anew at each
 * call. Its lines, in MiB, percent, degrees and watts:
 *   gpu FAULT TOTAL USED UTILIZATION TEMPERATURE POWER XID UUID NAME…     one for each GPU, in order
 *   proc GPU PID USED
 * A GPU whose /dev/nvidiaN the process may not open, as in a job whose devices are confined, is left out, and the others
 * are counted from 0, as by NVIDIA's library. FAULT is the code with which all questions about that GPU fail (15: lost), 0 for none. Structs are laid out as in nvml.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10 };
enum { MAX_GPUS = 16, MAX_PROCESSES = 64, XID_EVENT = 8 };

typedef struct { int fault; unsigned long long total, used; unsigned utilization, temperature, power, xid; char uuid[80], name[96]; } Gpu;
typedef struct { unsigned gpu, pid; unsigned long long used; } Process;
typedef struct { Gpu gpus[MAX_GPUS]; Process processes[MAX_PROCESSES]; unsigned gpu_count, process_count; } State;
typedef uintptr_t Device; /* index + 1 */

/* Nothing answers on the device here, so one that may be opened fails too, but not for want of permission. */
static int may_open(unsigned minor) {
    char path[32];
    snprintf(path, sizeof path, "/dev/nvidia%u", minor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor >= 0) close(descriptor);
    return descriptor >= 0 || (errno != EPERM && errno != EACCES);
}

static int read_state(State *state) {
    char line[512];
    unsigned minor = 0;
    int visible[MAX_GPUS]; /* index by minor number, -1: not to be seen */
    FILE *file = fopen("/run/lab/gpus", "re");
    if (!file) return DRIVER_NOT_LOADED;
    memset(state, 0, sizeof *state);
    while (fgets(line, sizeof line, file)) {
        Gpu *gpu = &state->gpus[state->gpu_count];
        Process *process = &state->processes[state->process_count];
        if (state->gpu_count < MAX_GPUS &&
            sscanf(line, "gpu %d %llu %llu %u %u %u %u %79s %95[^\n]", &gpu->fault, &gpu->total, &gpu->used,
                   &gpu->utilization, &gpu->temperature, &gpu->power, &gpu->xid, gpu->uuid, gpu->name) == 9) {
            if (minor == MAX_GPUS) continue;
            visible[minor] = may_open(minor) ? (int)state->gpu_count++ : -1;
            minor++;
        } else if (state->process_count < MAX_PROCESSES &&
                   sscanf(line, "proc %u %u %llu", &process->gpu, &process->pid, &process->used) == 3) {
            if (process->gpu >= minor || visible[process->gpu] < 0) continue;
            process->gpu = visible[process->gpu];
            state->process_count++;
        }
    }
    fclose(file);
    return SUCCESS;
}

static int find(Device device, State *state, Gpu **gpu) {
    int failed = read_state(state);
    if (failed) return failed;
    if (device == 0 || device > state->gpu_count) return INVALID_ARGUMENT;
    *gpu = &state->gpus[device - 1];
    return (*gpu)->fault;
}

#define ASK_DEVICE(device)                                                                                             \
    State state;                                                                                                       \
    Gpu *gpu;                                                                                                          \
    int failed = find(device, &state, &gpu);                                                                           \
    if (failed) return failed

static int copy(const char *text, char *target, unsigned length) {
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(target, text);
    return SUCCESS;
}

int nvmlInit_v2(void) { State state; return read_state(&state); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { return copy("550.54.15", text, length); }
int nvmlSystemGetNVMLVersion(char *text, unsigned length) { return copy("12.550.54.15", text, length); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12040; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    State state;
    int failed = read_state(&state);
    *count = state.gpu_count;
    return failed;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    ASK_DEVICE(index + 1);
    *device = index + 1;
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    State state;
    int failed = read_state(&state);
    for (unsigned index = 0; !failed && index < state.gpu_count; index++)
        if (!strcmp(state.gpus[index].uuid, uuid)) { *device = index + 1; return SUCCESS; }
    return failed ? failed : 6;
}

int nvmlDeviceGetIndex(Device device, unsigned *index) { ASK_DEVICE(device); *index = device - 1; return SUCCESS; }
int nvmlDeviceGetName(Device device, char *text, unsigned length) { ASK_DEVICE(device); return copy(gpu->name, text, length); }
int nvmlDeviceGetUUID(Device device, char *text, unsigned length) { ASK_DEVICE(device); return copy(gpu->uuid, text, length); }

int nvmlDeviceGetUtilizationRates(Device device, unsigned *rates) {
    ASK_DEVICE(device);
    rates[0] = gpu->utilization;
    rates[1] = gpu->utilization / 2; /* memory bandwidth */
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device device, unsigned long long *info) {
    ASK_DEVICE(device);
    info[0] = gpu->total << 20;
    info[1] = (gpu->total - gpu->used) << 20;
    info[2] = gpu->used << 20;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(Device device, unsigned *milliwatts) { ASK_DEVICE(device); *milliwatts = gpu->power * 1000; return SUCCESS; }
int nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned *milliwatts) { ASK_DEVICE(device); *milliwatts = 700000; return SUCCESS; }

int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *degrees) {
    (void)sensor;
    ASK_DEVICE(device);
    *degrees = gpu->temperature;
    return SUCCESS;
}

/* As cards do: from so many degrees on, the driver lowers their clocks to cool them. */
enum { SLOWDOWN_C = 90, MOST_MHZ = 1980, SLOWED_MHZ = 1200, SW_THERMAL = 0x20, SM_CLOCK = 1 };

int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *reasons) {
    ASK_DEVICE(device);
    *reasons = gpu->temperature >= SLOWDOWN_C ? SW_THERMAL : 0;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(Device device, unsigned kind, unsigned *mhz) {
    ASK_DEVICE(device);
    *mhz = kind == SM_CLOCK && gpu->temperature >= SLOWDOWN_C ? SLOWED_MHZ : MOST_MHZ;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(Device device, unsigned kind, unsigned *mhz) {
    (void)kind;
    ASK_DEVICE(device);
    *mhz = MOST_MHZ;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, void *target) {
    struct { unsigned pid; unsigned long long used; unsigned instance, compute_instance; } *entries = target;
    unsigned room = *count;
    ASK_DEVICE(device);
    *count = 0;
    for (unsigned index = 0; index < state.process_count; index++) {
        Process *process = &state.processes[index];
        if (process->gpu != device - 1) continue;
        if (*count < room) {
            entries[*count].pid = process->pid;
            entries[*count].used = process->used << 20;
            entries[*count].instance = entries[*count].compute_instance = ~0u;
        }
        ++*count;
    }
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned *count, void *target) {
    (void)target;
    ASK_DEVICE(device);
    *count = 0;
    return SUCCESS;
}

/* Xid events: one for each change of a GPU's XID, after the set was made. */
static unsigned known_xid[MAX_GPUS];

int nvmlEventSetCreate(uintptr_t *set) {
    State state;
    int failed = read_state(&state);
    for (unsigned index = 0; index < MAX_GPUS; index++) known_xid[index] = state.gpus[index].xid;
    *set = 1;
    return failed;
}

int nvmlEventSetFree(uintptr_t set) { (void)set; return SUCCESS; }
int nvmlDeviceGetSupportedEventTypes(Device device, unsigned long long *types) { ASK_DEVICE(device); *types = XID_EVENT; return SUCCESS; }

int nvmlDeviceRegisterEvents(Device device, unsigned long long types, uintptr_t set) {
    (void)types, (void)set;
    ASK_DEVICE(device);
    return SUCCESS;
}

int nvmlEventSetWait_v2(uintptr_t set, void *target, unsigned timeout_ms) {
    struct { Device device; unsigned long long type, data; unsigned instance, compute_instance; } *event = target;
    (void)set;
    for (unsigned waited_ms = 0;; waited_ms += 50) {
        State state;
        int failed = read_state(&state);
        if (failed) return failed;
        for (unsigned index = 0; index < state.gpu_count; index++) {
            unsigned xid = state.gpus[index].xid, before = known_xid[index];
            known_xid[index] = xid;
            if (!xid || xid == before) continue;
            event->device = index + 1;
            event->type = XID_EVENT;
            event->data = xid;
            event->instance = event->compute_instance = ~0u;
            return SUCCESS;
        }
        if (waited_ms >= timeout_ms) return TIMEOUT;
        usleep(50000);
    }
}
