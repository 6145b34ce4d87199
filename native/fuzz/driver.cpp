// A main() for fuzz targets where libFuzzer is absent: seeded random mutations of a small built-in corpus.
// It is blind (no coverage feedback), deterministic for a seed, and takes the flags of libFuzzer that we use:
//   fuzz_x [-runs=N] [-max_total_time=SECONDS] [-seed=N] [-max_len=BYTES] [FILE...]
// Files are run as they are instead of mutations. An input that ends the process is left in ./crash-input.

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <chrono>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Bytes = std::vector<std::uint8_t>;

struct Options {
    std::uint64_t runs = 100000;
    std::uint64_t max_total_time_s = 30;
    std::uint64_t seed = 1;
    std::uint64_t max_len = 4096;
    std::vector<std::string> files;
};

// Text that sits on the edges of splitters and UTF-8 decoders; mutations join and break it.
constexpr std::string_view kCorpus[] = {
    "",
    "Hello, world! It's 2024; they'LL pay $1,234.50.\r\n\r\n  \tfoo_bar(x) += 1;\n",
    "          \n\n\n\t \r\n \n   x",
    "1234567890123456789012345678901234567890",
    "\xc3\xa9t\xc3\xa9 \xe6\xb0\xb4\xe8\xbb\x8a\xe5\xb0\x8f\xe5\xb1\x8b \xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 \xd0\xbc\xd0\xb8\xd1\x80",
    "e\xcc\x81\xcc\x82\xcc\x83 a\xcc\xa7\xcc\x81 \xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8 \xef\xac\x81 \xe2\x84\xab",
    "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x8c\xbe\xf0\x9f\x91\xa8\xf0\x9f\x8f\xbd\xe2\x80\x8d\xf0\x9f\x8c\xbe\xef\xb8\x8f",
    "\xe2\x96\x81\xe2\x96\x81low \xe2\x96\x81 <0x0A><0xFF> <s></s><|endoftext|> <|im_start|>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "\xc2\xa0\xe2\x80\xa8\xe2\x80\xa9\xe3\x80\x80\xe2\x80\x8b\xef\xbb\xbf\xc2\x85",
    "\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xf0\x90\x80\x80",
    "\xff\xfe\xc0\xaf\xe0\x80\x80\xed\xa0\x80\xf5\x80\x80\x80\x80\xc3",
};

Bytes current;  // the input under test: what a crash leaves behind

void save_current() {
    if (std::FILE* file = std::fopen("crash-input", "wb")) {
        std::fwrite(current.data(), 1, current.size(), file);
        std::fclose(file);
        std::fprintf(stderr, "input of %zu bytes left in ./crash-input\n", current.size());
    }
}

void on_abort(int) {
    save_current();
    std::_Exit(134);
}

class Mutator {
public:
    Mutator(std::uint64_t seed, std::size_t max_len) : random_(seed), max_len_(max_len) {}

    Bytes next() {
        Bytes bytes = corpus_entry();
        for (std::size_t n = below(6); n > 0; --n) mutate(bytes);
        if (bytes.size() > max_len_) bytes.resize(max_len_);
        return bytes;
    }

private:
    // Not std::uniform_int_distribution: its sequence differs between standard libraries. The bias is no matter here.
    std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

    Bytes corpus_entry() {
        std::string_view text = kCorpus[below(std::size(kCorpus))];
        return Bytes(text.begin(), text.end());
    }

    void mutate(Bytes& bytes) {
        const std::size_t at = below(bytes.size() + 1);
        const std::size_t length = below(bytes.size() - at + 1);
        const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at);
        const auto last = first + static_cast<std::ptrdiff_t>(length);
        switch (below(7)) {
            case 0:  // cut
                bytes.erase(first, last);
                break;
            case 1: {  // put another entry in the middle
                const Bytes other = corpus_entry();
                bytes.insert(first, other.begin(), other.end());
                break;
            }
            case 2: {  // repeat a stretch
                const Bytes stretch(first, last);
                for (std::size_t n = below(40); n > 0 && bytes.size() < max_len_; --n)
                    bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), stretch.begin(), stretch.end());
                break;
            }
            case 3:  // any byte
                bytes.insert(first, static_cast<std::uint8_t>(random_()));
                break;
            case 4:  // flip a bit
                if (at < bytes.size()) bytes[at] ^= static_cast<std::uint8_t>(1u << below(8));
                break;
            case 5:  // any code point, as UTF-8
                insert_code_point(bytes, at, static_cast<std::uint32_t>(below(below(4) == 0 ? 0x110000 : 0x3100)));
                break;
            default:  // a run of one printable character
                bytes.insert(first, below(200), static_cast<std::uint8_t>(0x20 + below(95)));
        }
    }

    static void insert_code_point(Bytes& bytes, std::size_t at, std::uint32_t code) {
        Bytes encoded;
        if (code < 0x80) {
            encoded = {static_cast<std::uint8_t>(code)};
        } else {
            const int tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
            const std::uint32_t lead = tail == 1 ? 0xC0 : tail == 2 ? 0xE0 : 0xF0;
            encoded.push_back(static_cast<std::uint8_t>(lead | (code >> (6 * tail))));
            for (int shift = 6 * (tail - 1); shift >= 0; shift -= 6)
                encoded.push_back(static_cast<std::uint8_t>(0x80 | ((code >> shift) & 0x3F)));
        }
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), encoded.begin(), encoded.end());
    }

    std::mt19937_64 random_;
    std::size_t max_len_;
};

bool read_number(std::string_view argument, std::string_view flag, std::uint64_t& value) {
    if (!argument.starts_with(flag)) return false;
    value = std::strtoull(argument.data() + flag.size(), nullptr, 10);
    return true;
}

Options read_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (read_number(argument, "-runs=", options.runs) || read_number(argument, "-seed=", options.seed) ||
            read_number(argument, "-max_total_time=", options.max_total_time_s) ||
            read_number(argument, "-max_len=", options.max_len))
            continue;
        if (argument.starts_with("-")) {
            std::fprintf(stderr, "unknown flag %s\n", argv[i]);
            std::exit(2);
        }
        options.files.emplace_back(argument);
    }
    return options;
}

void run(Bytes input) {
    current = std::move(input);
    // A copy of exact size on the heap: a read past its end is then seen by AddressSanitizer.
    const Bytes copy(current);
    LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = read_options(argc, argv);
    std::signal(SIGABRT, on_abort);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(save_current);

    for (const std::string& path : options.files) {
        std::ifstream file(path, std::ios::binary);
        if (!file) {
            std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
            return 2;
        }
        run(Bytes(std::istreambuf_iterator<char>(file), {}));
    }
    if (!options.files.empty()) return 0;

    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.max_total_time_s);
    Mutator mutator(options.seed, options.max_len);
    for (std::string_view text : kCorpus) run(Bytes(text.begin(), text.end()));
    std::uint64_t done = 0;
    for (; done < options.runs && std::chrono::steady_clock::now() < end; ++done) run(mutator.next());
    std::printf("%llu runs, seed %llu: nothing found\n", static_cast<unsigned long long>(done),
                static_cast<unsigned long long>(options.seed));
    return 0;
}
