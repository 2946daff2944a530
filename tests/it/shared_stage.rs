//! One stage for many tests.

use konverge_e2e::Stage;
use tokio::sync::OnceCell;

/// Runs on a stage that ends with the process. Its clients live on a runtime of their own.
pub(crate) fn on_stage(test: impl AsyncFnOnce(&'static Stage)) {
    static RUNTIME: std::sync::LazyLock<tokio::runtime::Runtime> =
        std::sync::LazyLock::new(|| tokio::runtime::Runtime::new().unwrap());
    static STAGE: OnceCell<Stage> = OnceCell::const_new();
    RUNTIME.block_on(async {
        let stage = STAGE.get_or_init(|| async { Stage::set().await.unwrap() }).await;
        test(stage).await;
    });
}
