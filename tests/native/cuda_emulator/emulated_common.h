// The functions that are PTX in csrc/cuda/common.cuh, as plain C++. common.cuh includes this file
// inside its namespace.

template <typename T>
T* shared_memory() {
    return reinterpret_cast<T*>(emulator::shared_memory());
}

inline void wait_for_previous_launch() {
    emulator::wait_for_previous_grid();
}

inline void allow_next_launch() {}

inline void copy_async(void* shared, const void* global, bool valid = true,
                       emulator::Where where = emulator::Where::current()) {
    emulator::copy_async(shared, global, valid, where);
}

inline void commit_copies() {
    emulator::commit_copies();
}

template <int kPending>
void wait_for_copies() {
    emulator::wait_for_copies(kPending);
}

struct Product {
    float* d;           // (4,)
    const uint32_t* a;  // (4,)
    const uint32_t* b;  // (2,)
};

// d += A B: products are exact, sums are float32.
template <float (*to_float)(uint16_t)>
void settle_product(void* const (&lanes)[32]) {
    float a[16][16];
    float b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const auto* part = static_cast<const Product*>(lanes[lane]);
        const int g = lane / 4;
        const int t = lane % 4;
        for (int i = 0; i < 4; ++i) {
            const int row = g + i % 2 * 8;
            const int column = 2 * t + i / 2 * 8;
            a[row][column] = to_float(static_cast<uint16_t>(part->a[i]));
            a[row][column + 1] = to_float(static_cast<uint16_t>(part->a[i] >> 16));
        }
        for (int i = 0; i < 2; ++i) {
            const int row = 2 * t + i * 8;
            b[row][g] = to_float(static_cast<uint16_t>(part->b[i]));
            b[row + 1][g] = to_float(static_cast<uint16_t>(part->b[i] >> 16));
        }
    }
    for (int lane = 0; lane < 32; ++lane) {
        const auto* part = static_cast<const Product*>(lanes[lane]);
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8;
            const int column = lane % 4 * 2 + i % 2;
            float sum = part->d[i];
            for (int k = 0; k < 16; ++k) {
                sum += a[row][k] * b[k][column];
            }
            part->d[i] = sum;
        }
    }
}

inline void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                          emulator::Where where = emulator::Where::current()) {
    Product mine = {d, a, b};
    emulator::meet(emulator::Meeting::kMultiply, kAllLanes, &mine,
                   settle_product<emulator::bf16_to_float>, where);
}

inline void multiply_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                         emulator::Where where = emulator::Where::current()) {
    Product mine = {d, a, b};
    emulator::meet(emulator::Meeting::kMultiply, kAllLanes, &mine,
                   settle_product<emulator::half_to_float>, where);
}

struct TransposedLoad {
    const uint16_t* row;  // (8,)
    uint32_t* tiles;      // (4,)
};

inline void load_transposed(uint32_t (&tiles)[4], const void* row,
                            emulator::Where where = emulator::Where::current()) {
    emulator::expect_shared(row, where);
    TransposedLoad mine = {static_cast<const uint16_t*>(row), tiles};
    emulator::meet(
        emulator::Meeting::kLoadTransposed, kAllLanes, &mine,
        [](void* const(&lanes)[32]) {
            for (int lane = 0; lane < 32; ++lane) {
                const auto* asked = static_cast<const TransposedLoad*>(lanes[lane]);
                const int row_of_pair = lane % 4 * 2;
                const int column = lane / 4;
                for (int tile = 0; tile < 4; ++tile) {
                    const auto value = [&](int in_tile) -> uint32_t {
                        return static_cast<const TransposedLoad*>(lanes[8 * tile + in_tile])
                            ->row[column];
                    };
                    asked->tiles[tile] = value(row_of_pair) | value(row_of_pair + 1) << 16;
                }
            }
        },
        where);
}

struct TransposedTile {
    uint32_t pair;
    uint32_t result;
};

inline uint32_t transpose_tile(uint32_t pair, emulator::Where where = emulator::Where::current()) {
    TransposedTile mine = {pair, 0};
    emulator::meet(
        emulator::Meeting::kTranspose, kAllLanes, &mine,
        [](void* const(&lanes)[32]) {
            const auto value = [&](int row, int column) {
                const auto* at = static_cast<const TransposedTile*>(lanes[4 * row + column / 2]);
                return at->pair >> column % 2 * 16 & 0xffff;
            };
            for (int lane = 0; lane < 32; ++lane) {
                const int row = lane % 4 * 2;
                const int column = lane / 4;
                static_cast<TransposedTile*>(lanes[lane])->result =
                    value(row, column) | value(row + 1, column) << 16;
            }
        },
        where);
    return mine.result;
}

template <uint32_t kMask, uint32_t kBits>
uint32_t and_or(uint32_t a) {
    return (a & kMask) | kBits;
}

inline uint32_t select_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    return __byte_perm(low, high, selector);
}

// Touches the bytes: an address outside of the memory is an error here.
inline void prefetch_l2(const void* global, int n_bytes,
                        emulator::Where where = emulator::Where::current()) {
    emulator::expect_aligned(global, where);
    emulator::expect_aligned(static_cast<const char*>(global) + n_bytes, where);
    for (int at = 0; at < n_bytes; at += 16) {
        static_cast<void>(static_cast<const volatile char*>(global)[at]);
    }
}

inline int count_up(int* counter) {
    return (*counter)++;
}

template <typename T>
T load_fresh(const T* address) {
    return *address;
}

inline uint4 load_once(const void* address, emulator::Where where = emulator::Where::current()) {
    emulator::expect_aligned(address, where);
    return *static_cast<const uint4*>(address);
}

// A grid's extent and the place of its launch, for messages.
struct GridAt {
    dim3 grid;
    emulator::Where where;

    GridAt(dim3 grid_, emulator::Where where_ = emulator::Where::current())
        : grid(grid_), where(where_) {}
    template <typename T>
        requires std::is_integral_v<T>
    GridAt(T x, emulator::Where where_ = emulator::Where::current())
        : grid(static_cast<unsigned>(x)), where(where_) {}
};

template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), GridAt at, dim3 block, size_t shared_bytes,
                   LaunchAt to, const Arguments&... arguments) {
    static_assert((sizeof(Parameters) + ... + 0) <= 4096, "more arguments than a launch takes");
    const Device* device = nullptr;
    const cudaError_t error = prepare_kernel(reinterpret_cast<const void*>(kernel), &device);
    if (error != cudaSuccess) {
        return error;
    }
    emulator::Grid grid = {
        .grid = {at.grid.x, at.grid.y, at.grid.z},
        .block = {block.x, block.y, block.z},
        .shared_bytes = shared_bytes,
        .launched_at = at.where,
        .kernel = [kernel, ... copies = Parameters(arguments)] { kernel(copies...); },
        .may_overlap = to.overlaps && device->can_overlap,
    };
    return emulator::enqueue(reinterpret_cast<const void*>(kernel), std::move(grid), to.stream);
}
