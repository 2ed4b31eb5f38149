/**
 * The sandbox's boundary around Python: every function that CPython's WebAssembly may call outside itself, and what such
 * a call does once programs run.
 *
 * Pyodide lets Python reach any JavaScript object, the file system layer of Emscripten and, under Node, sockets and
 * processes. All of that goes through imported functions, so the imports are the boundary: those that only read are left
 * as they are, those that a program needs are replaced by ones that use the state of the run, and all others are
 * refused, including those of a later release of Pyodide. A program that corrupts its own memory still has nothing else
 * to call. Nothing outside the memory can be changed, so restoring the memory restores everything.
 */
import { Buffer } from "node:buffer";
import { randomFillSync as fillRandom } from "node:crypto";
import { type RunState, Stop } from "./run-state.ts";
import { type Imports, PAGE, wasm } from "./webassembly.ts";

type Import = (...args: never[]) => unknown;

/** What the gate needs of Emscripten's module. */
export type Emscripten = {
  readonly HEAPU8: Uint8Array;
  readonly HEAPU32: Uint32Array;
  readonly FS: {
    readonly streams: ({ readonly node: { readonly mode: number } } | null)[];
    isFile(mode: number): boolean;
    isDir(mode: number): boolean;
  };
  growMemory(bytes: number): number | undefined;
};

/** Error numbers of WASI, which Emscripten uses. */
const errno = { access: 2, badFile: 8, notPermitted: 63, noTerminal: 59, noSeek: 70, readOnly: 69 } as const;

/** Only reading: clocks, time zones, the read-only file tree, the (empty) environment. */
const harmless: ReadonlySet<string> = new Set([
  "clock_time_get",
  "clock_res_get",
  "emscripten_get_now",
  "emscripten_date_now",
  "_tzset_js",
  "_localtime_js",
  "_gmtime_js",
  "_mktime_js",
  "_timegm_js",
  "environ_get",
  "environ_sizes_get",
  "__syscall_getuid32_js",
  "__syscall_stat64",
  "__syscall_fstat64",
  "__syscall_lstat64",
  "__syscall_newfstatat",
  "__syscall_statfs64",
  "__syscall_faccessat",
  "__syscall_getcwd",
  "__syscall_getdents64",
  "__syscall_readlinkat",
  "fd_fdstat_get",
  "_PyEM_TrampolineCall_JS",
  "JsvError_Check",
  "Jsv_GetError_import",
]);

/** Opened for writing, created or cut: any of O_WRONLY, O_RDWR, O_CREAT, O_TRUNC. */
const WRITE_FLAGS = 0o1 | 0o2 | 0o100 | 0o1000;
/** `fcntl` commands that only ask. */
const F_GETFD = 1;
const F_GETFL = 3;

export class PythonGate {
  #run: RunState | null = null;
  #module: Emscripten | null = null;

  /** From now on programs run, and calls are restricted for good. */
  close(module: Emscripten): void {
    this.#module = module;
  }

  /** The running program, whose limits apply. */
  begin(run: RunState): void {
    this.#run = run;
  }

  /** The imports of Emscripten with the gate before each. */
  guard(module: object, imports: Imports): Imports {
    const guarded: Record<string, Record<string, unknown>> = {};
    for (const { module: space, name, kind } of wasm.Module.imports(module)) {
      const original = imports[space]?.[name];
      guarded[space] ??= {};
      guarded[space][name] = kind === "function" && !harmless.has(name) ? this.#gated(name, original) : original;
    }
    return guarded;
  }

  #gated(name: string, original: unknown): Import {
    const served = this.#served(name, original as Import); // of an import of kind "function"
    const refused = name.startsWith("__syscall_")
      ? () => -errno.notPermitted
      : () => {
          throw new Stop("forbidden", `the sandbox does not let a program call ${name}`);
        };
    const once = served ?? refused;
    if (typeof original !== "function") return once; // needs a feature that this engine does not have
    return (...args: never[]) => (this.#module === null ? original(...args) : once(...args));
  }

  /** What a program gets instead of the original, or null if the call is refused. */
  #served(name: string, original: Import): Import | null {
    const pass = original as (...args: unknown[]) => number; // system calls answer with a number
    const table: Readonly<Record<string, Import>> = {
      fd_write: (fd: number, iovs: number, count: number, written: number) => this.#write(fd, iovs, count, written),
      fd_read: (fd: number, iovs: number, count: number, read: number) =>
        fd === 0 ? this.#read(iovs, count, read) : this.#isFile(fd) ? pass(fd, iovs, count, read) : errno.badFile,
      fd_pread: (fd: number, ...rest: unknown[]) => (this.#isFile(fd) ? pass(fd, ...rest) : errno.badFile),
      fd_seek: (fd: number, ...rest: unknown[]) => (this.#isFile(fd) ? pass(fd, ...rest) : errno.noSeek),
      fd_close: (fd: number) => (this.#isFile(fd) ? pass(fd) : 0), // the standard streams stay
      fd_sync: () => 0,
      __syscall_openat: (at: number, path: number, flags: number, mode: number) =>
        this.#open(path, flags, () => pass(at, path, flags, mode)),
      __syscall_fcntl64: (fd: number, command: number, rest: number) =>
        command === F_GETFD || command === F_GETFL ? pass(fd, command, rest) : -errno.notPermitted,
      __syscall_ioctl: () => -errno.noTerminal,
      __syscall_umask_js: () => 0o022,
      random_get: (at: number, count: number) => {
        fillRandom(this.#heap().subarray(at >>> 0, (at >>> 0) + count));
        return 0;
      },
      emscripten_resize_heap: (bytes: number) => this.#grow(bytes >>> 0),
      emscripten_get_heap_max: () => this.#current().memoryBytes,
      _Py_CheckEmscriptenSignals_Helper: () => {
        this.#current().checkTime();
        return 0;
      },
      exit: (code: number) => this.#exit(code),
      proc_exit: (code: number) => this.#exit(code),
      _abort_js: () => this.#abort(),
      __assert_fail: () => this.#abort(),
      _emscripten_system: () => -errno.notPermitted,
      _setitimer_js: () => -errno.notPermitted,
      _mmap_js: () => -errno.notPermitted,
      _dlopen_js: () => 0,
      _dlsym_js: () => 0,
      getaddrinfo: () => -4, // EAI_FAIL
      getnameinfo: () => -4,
      getprotobyname: () => 0,
      emscripten_runtime_keepalive_push: () => undefined,
      emscripten_runtime_keepalive_pop: () => undefined,
      emscripten_log_impl_js: () => undefined,
      _emscripten_log_formatted: () => undefined,
    };
    return Object.hasOwn(table, name) ? (table[name] ?? null) : null;
  }

  #write(fd: number, iovs: number, count: number, written: number): number {
    if (fd !== 1 && fd !== 2) return errno.badFile;
    let total = 0;
    for (const chunk of this.#chunks(iovs, count)) {
      this.#current().write(fd, chunk);
      total += chunk.length;
    }
    this.#words()[written >>> 2] = total;
    return 0;
  }

  #read(iovs: number, count: number, read: number): number {
    let total = 0;
    for (const chunk of this.#chunks(iovs, count)) {
      const bytes = this.#current().read(chunk.length);
      chunk.set(bytes);
      total += bytes.length;
      if (bytes.length < chunk.length) break;
    }
    this.#words()[read >>> 2] = total;
    return 0;
  }

  #chunks(iovs: number, count: number): Uint8Array[] {
    const words = this.#words();
    return Array.from({ length: count }, (_, i) => {
      const [at, length] = [words[(iovs >>> 2) + 2 * i]!, words[(iovs >>> 2) + 2 * i + 1]!];
      return this.#heap().subarray(at, at + length);
    });
  }

  /** Files and folders of the file tree, for reading; no devices, because they lead outside. */
  #open(path: number, flags: number, open: () => number): number {
    const heap = this.#heap();
    const name = Buffer.from(heap.subarray(path >>> 0, heap.indexOf(0, path >>> 0))).toString("utf8");
    if (name === "/dev/stdin" && (flags & WRITE_FLAGS) === 0) return 0;
    if ((flags & WRITE_FLAGS) !== 0) return -errno.readOnly;
    const fd = open();
    if (fd < 0 || this.#isFile(fd)) return fd;
    this.#files().streams[fd] = null;
    return -errno.access;
  }

  /** Opened by the program, and a file or a folder. */
  #isFile(fd: number): boolean {
    const { streams, isFile, isDir } = this.#files();
    const mode = fd > 2 ? streams[fd]?.node.mode : undefined;
    return mode !== undefined && (isFile(mode) || isDir(mode));
  }

  #grow(bytes: number): boolean {
    const size = Math.ceil(bytes / PAGE) * PAGE;
    // A little more than requested, so that memory that grows in small steps is not copied each time.
    const roomy = Math.min(this.#current().memoryBytes, Math.max(size, this.#heap().length + 16 * 2 ** 20));
    return size <= roomy && this.#emscripten().growMemory(roomy) === 1;
  }

  #exit(code: number): never {
    throw new Stop(code === 0 ? "ok" : "error", "", code);
  }

  #abort(): never {
    throw new Stop("crash", "the interpreter was aborted");
  }

  #current(): RunState {
    if (this.#run === null) throw new Stop("crash", "no program runs");
    return this.#run;
  }

  #emscripten(): Emscripten {
    if (this.#module === null) throw new Stop("crash", "the gate is open");
    return this.#module;
  }

  #heap(): Uint8Array {
    return this.#emscripten().HEAPU8;
  }

  #words(): Uint32Array {
    return this.#emscripten().HEAPU32;
  }

  #files(): Emscripten["FS"] {
    return this.#emscripten().FS;
  }
}
