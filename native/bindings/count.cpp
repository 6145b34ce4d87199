// Pieces counted, and files of them.
#include <atomic>
#include <deque>

#include "bindings/build.hpp"
#include "bindings/first_blocks.hpp"
#include "bindings/pieces.hpp"
#include "bindings/subjects.hpp"
#include "count.hpp"
#include "inventory.hpp"
#include "utf8_check.hpp"

namespace gristmill {
namespace {

// By reference: a copy would need the GIL.
Sink sink_of(const nb::callable& write) {
    return [&write](const uint8_t* bytes, size_t size) {
        nb::gil_scoped_acquire acquire;
        write(nb::bytes(bytes, size));
    };
}

nb::tuple tuple_of(const InventorySummary& summary) {
    return nb::make_tuple(summary.num_pieces, summary.total_count, summary.total_bytes, summary.longest_piece,
                          summary.dropped_count, summary.max_undercount);
}

// A counter, and what is being done with it: the GIL is let go meanwhile, and a second thread may call.
struct GuardedCounter {
    enum class Use { idle, adding, is_full, spilling };
    PieceCounter counter;
    std::atomic<Use> use = Use::idle;

    GuardedCounter(std::shared_ptr<const Program> program, size_t max_bytes, WhenFull when_full, size_t num_expected)
        : counter(std::move(program), max_bytes, when_full, num_expected) {}
    explicit GuardedCounter(PieceCounter&& other) : counter(std::move(other)) {}

    class Turn {
    public:
        Turn(GuardedCounter& guarded, Use wanted) : guarded_(guarded), before_(Use::idle) {
            bool is_free = guarded.use.compare_exchange_strong(before_, wanted);
            if (!is_free && before_ == Use::is_full && wanted == Use::spilling) {
                is_free = guarded.use.compare_exchange_strong(before_, wanted);
            }
            if (!is_free) throw std::runtime_error("a counter does one thing at a time");
        }
        ~Turn() { guarded_.use = before_; }

    private:
        GuardedCounter& guarded_;
        Use before_;
    };
};

// What a counter calls when it is full, with the GIL let go.
std::function<void()> spill_of(GuardedCounter& guarded, const nb::callable& on_full) {
    return [&guarded, &on_full] {
        nb::gil_scoped_acquire acquire;
        guarded.use = GuardedCounter::Use::is_full;
        on_full();
        guarded.use = GuardedCounter::Use::adding;
    };
}

void add_documents(GuardedCounter& guarded, Bytes buffer, Offsets offsets, uint64_t weight, nb::callable on_full) {
    size_t num_documents = check_offsets(offsets, buffer.size());
    GuardedCounter::Turn turn(guarded, GuardedCounter::Use::adding);
    auto ask_for_spill = spill_of(guarded, on_full);
    nb::gil_scoped_release release;
    for (size_t i = 0; i < num_documents; ++i) {
        auto begin = static_cast<size_t>(offsets.data()[i]), size = static_cast<size_t>(offsets.data()[i + 1]) - begin;
        const uint8_t* text = buffer.data() + begin;
        auto refuse = [i](const char* why) { throw std::invalid_argument("document " + std::to_string(i) + why); };
        if (utf8_find_invalid(text, size) != size) refuse(" is not UTF-8");
        try {
            guarded.counter.add({reinterpret_cast<const char*>(text), size}, weight, ask_for_spill);
        } catch (const TextTooLarge&) {
            refuse(" has 4 GB or more");
        }
    }
    guarded.counter.shrink();
}

// A counter and its twins, all of them taken.
struct TakenCounters {
    TakenCounters(GuardedCounter& first, const std::vector<GuardedCounter*>& others) {
        turns.emplace_back(first, GuardedCounter::Use::spilling);
        for (GuardedCounter* twin : others) {
            turns.emplace_back(*twin, GuardedCounter::Use::spilling);
            twins.push_back(&twin->counter);
        }
    }
    std::deque<GuardedCounter::Turn> turns;
    std::vector<PieceCounter*> twins;
};

nb::tuple spill_counters(GuardedCounter& guarded, nb::bytes about, nb::callable write, std::vector<GuardedCounter*> twins) {
    TakenCounters taken(guarded, twins);
    Sink sink = sink_of(write);
    InventorySummary summary;
    {
        nb::gil_scoped_release release;
        summary = guarded.counter.spill({about.c_str(), about.size()}, sink, taken.twins);
    }
    return tuple_of(summary);
}

// (bytes, offsets, counts, dropped count, max undercount)
nb::tuple gather_counters(GuardedCounter& guarded, std::vector<GuardedCounter*> twins) {
    TakenCounters taken(guarded, twins);
    CountedPieces counted;
    {
        nb::gil_scoped_release release;
        counted = guarded.counter.gather(taken.twins);
    }
    return nb::make_tuple(array_of(std::move(counted.bytes)), array_of(std::move(counted.offsets)),
                          array_of(std::move(counted.counts)), counted.dropped_count, counted.max_undercount);
}

nb::tuple write_pieces(nb::bytes about, Bytes bytes, Offsets offsets, Array<uint64_t> counts, uint64_t dropped_count,
                       uint64_t max_undercount, nb::callable write) {
    train::Pieces pieces = pieces_of(bytes, offsets, counts);
    Sink sink = sink_of(write);
    InventorySummary summary;
    {
        nb::gil_scoped_release release;
        InventoryWriter writer({about.c_str(), about.size()}, sink);
        for (size_t i = 0; i < pieces.size; ++i) {
            writer.put({reinterpret_cast<const char*>(pieces.begin(i)), pieces.length(i)}, pieces.counts[i]);
        }
        summary = writer.finish(dropped_count, max_undercount);
    }
    return tuple_of(summary);
}

// The next pieces of an inventory, flat: bytes, offsets, counts. It stops after the piece that brings max_bytes.
nb::tuple read_pieces(InventoryReader& reader, size_t max_bytes) {
    std::vector<uint8_t> bytes;
    std::vector<int64_t> offsets;
    std::vector<uint64_t> counts;
    {
        nb::gil_scoped_release release;
        const InventorySummary& summary = reader.summary();
        if (max_bytes >= summary.total_bytes) {
            bytes.reserve(summary.total_bytes);
            offsets.reserve(summary.num_pieces + 1);
            counts.reserve(summary.num_pieces);
        }
        offsets.push_back(0);
        while (bytes.size() < max_bytes && reader.next()) {
            bytes.insert(bytes.end(), reader.piece().begin(), reader.piece().end());
            offsets.push_back(static_cast<int64_t>(bytes.size()));
            counts.push_back(reader.count());
        }
    }
    return nb::make_tuple(array_of(std::move(bytes)), array_of(std::move(offsets)), array_of(std::move(counts)));
}

nb::tuple merge_files(const std::vector<std::string>& paths, uint64_t min_count, nb::callable write) {
    Sink sink = sink_of(write);
    MergeReport report;
    {
        nb::gil_scoped_release release;
        std::vector<std::unique_ptr<InventoryReader>> readers;
        for (const std::string& path : paths) readers.push_back(std::make_unique<InventoryReader>(open_file(path)));
        report = merge_inventories(readers, min_count, sink);
    }
    return nb::make_tuple(tuple_of(report.summary), report.num_dropped, report.dropped_count, report.dropped_bytes);
}

// ([(block, documents counted)], counter), or None.
nb::object take_counted(CountedStart& head) {
    bool is_good;
    {
        nb::gil_scoped_release release;
        is_good = head.stop();
    }
    if (!is_good) return nb::none();
    nb::list blocks;
    for (CountedStart::Block& block : head.blocks()) {
        size_t num_counted = block.num_counted;
        blocks.append(nb::make_tuple(tuple_of(std::move(block)), num_counted));
    }
    head.blocks().clear();
    auto counter = std::make_unique<GuardedCounter>(std::move(head.counter()));
    return nb::make_tuple(blocks, nb::cast(counter.release(), nb::rv_policy::take_ownership));
}

}  // namespace

void bind_count(nb::module_& m) {
    nb::exception<InventoryError>(m, "InventoryError", PyExc_ValueError);
    nb::class_<GuardedCounter>(m, "PieceCounter")
        .def("__init__", [](GuardedCounter* self, Build& build, size_t max_bytes, bool forgets, size_t num_expected) {
            auto program = std::make_shared<const Program>(std::move(build.program));
            new (self) GuardedCounter(program, max_bytes, forgets ? WhenFull::forget : WhenFull::spill, num_expected);
        }, "build"_a, "max_bytes"_a, "forgets"_a, "num_expected"_a = 0)
        .def("twin", [](const GuardedCounter& guarded) { return new GuardedCounter(guarded.counter.twin()); },
             nb::rv_policy::take_ownership)
        .def("add", &add_documents, nb::arg("buffer").noconvert(), nb::arg("offsets").noconvert(), "weight"_a, "on_full"_a)
        .def("spill", &spill_counters, "about"_a, "write"_a, "twins"_a = std::vector<GuardedCounter*>())
        .def("gather", &gather_counters, "twins"_a = std::vector<GuardedCounter*>())
        .def("allow", [](GuardedCounter& guarded, size_t max_bytes) {
            GuardedCounter::Turn turn(guarded, GuardedCounter::Use::adding);
            guarded.counter.allow(max_bytes);
        }, "max_bytes"_a)
        .def_prop_ro("num_pieces", [](const GuardedCounter& guarded) { return guarded.counter.num_pieces(); })
        .def_prop_ro("total_count", [](const GuardedCounter& guarded) { return guarded.counter.total_count(); })
        .def_prop_ro("max_undercount", [](const GuardedCounter& guarded) { return guarded.counter.max_undercount(); })
        .def_prop_ro("memory_bytes", [](const GuardedCounter& guarded) { return guarded.counter.memory_bytes(); });
    nb::class_<CountedStart>(m, "CountedStart")
        .def("__init__", [](CountedStart* self, nb::bytes path, nb::bytes text_field, Build& build, size_t max_bytes, size_t num_expected,
                            size_t block_bytes, uint64_t most_bytes) {
            auto program = std::make_shared<const Program>(std::move(build.program));
            PieceCounter counter(program, max_bytes, WhenFull::spill, num_expected);
            new (self) CountedStart({path.c_str(), path.size()}, top_field(text_field), std::move(counter), {block_bytes, most_bytes});
        }, "path"_a, "text_field"_a, "build"_a, "max_bytes"_a, "num_expected"_a, "block_bytes"_a, "most_bytes"_a)
        .def("take", &take_counted);
    nb::class_<InventoryReader>(m, "InventoryReader")
        .def("__init__", [](InventoryReader* self, const std::string& path) { new (self) InventoryReader(open_file(path)); },
             "path"_a)
        .def_prop_ro("about", [](const InventoryReader& reader) { return nb::bytes(reader.about().data(), reader.about().size()); })
        .def_prop_ro("summary", [](const InventoryReader& reader) { return tuple_of(reader.summary()); })
        .def("read", &read_pieces, "max_bytes"_a);
    m.def("write_inventory", &write_pieces, "about"_a, nb::arg("bytes").noconvert(), nb::arg("offsets").noconvert(),
          nb::arg("counts").noconvert(), "dropped_count"_a, "max_undercount"_a, "write"_a);
    m.def("merge_inventories", &merge_files, "paths"_a, "min_count"_a, "write"_a);
}

}  // namespace gristmill
