//! All that acts on a stage, kept acting.

use std::{process::ExitStatus, time::Duration};

use anyhow::Result;
use tokio::time::sleep;

use crate::{ManageStage, OpenZroAccount, Operator, PushStage, RollStage, Stage};

/// How often is looked after them.
const LOOK: Duration = Duration::from_millis(200);

/// How long a process that was killed stays away: long enough to see what becomes of the others meanwhile.
const AWAY: Duration = Duration::from_secs(2);

/// A stage and its operators. A killed server is started again, on the same ports and data.
pub struct Cast {
    // They end before what they speak to.
    operator: Operator,
    push: Option<PushStage>,
    roll: Option<RollStage>,
    manage: Option<ManageStage>,
    account: Option<OpenZroAccount>,
    stage: Stage,
}

impl Cast {
    /// Puts the operator on the stage.
    pub fn new(stage: Stage, operator: Operator) -> Self {
        Self { operator, push: None, roll: None, manage: None, account: None, stage }
    }

    /// A Vault and its operator come in.
    pub fn enter(&mut self, push: PushStage) {
        self.push = Some(push);
    }

    /// The operator that rolls comes in.
    pub fn follow(&mut self, roll: RollStage) {
        self.roll = Some(roll);
    }

    /// The operator that rolls, once it has come in.
    pub fn roll(&mut self) -> Option<&mut RollStage> {
        self.roll.as_mut()
    }

    /// The operator of openZro comes in.
    pub fn manage(&mut self, manage: ManageStage) {
        self.manage = Some(manage);
    }

    /// The operator of openZro, once it has come in.
    pub fn manager(&mut self) -> Option<&mut ManageStage> {
        self.manage.as_mut()
    }

    /// Keeps an account of openZro for as long as its operator.
    pub fn keep_account(&mut self, account: OpenZroAccount) {
        self.account = Some(account);
    }

    /// The account of openZro that was kept.
    pub fn account(&self) -> Option<&OpenZroAccount> {
        self.account.as_ref()
    }

    /// The stage.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Vault and its operator, once they have come in.
    pub fn push(&self) -> Option<&PushStage> {
        self.push.as_ref()
    }

    /// Does `act` to its end, and again when a process was killed meanwhile; then it is told that it is not the first time. It has to be
    /// something that may be done twice, and may be dropped at any moment.
    pub async fn perform<T>(&mut self, act: impl AsyncFn(bool) -> Result<T>) -> Result<T> {
        let mut again = false;
        loop {
            let outcome = tokio::select! {
                outcome = act(again) => Some(outcome),
                () = self.one_ends() => None,
            };
            match outcome {
                Some(Ok(done)) => return Ok(done),
                Some(Err(error)) => {
                    // It may have failed for want of a process whose end is not known yet.
                    sleep(LOOK).await;
                    if self.ended().is_empty() {
                        return Err(error);
                    }
                }
                None => {}
            }
            self.mend().await?;
            again = true;
        }
    }

    async fn one_ends(&mut self) {
        while self.ended().is_empty() {
            sleep(LOOK).await;
        }
    }

    /// Says what has ended, and starts it again.
    async fn mend(&mut self) -> Result<()> {
        for (name, status) in self.ended() {
            println!("  {name} has ended ({status}); it is started again in {} s", AWAY.as_secs());
        }
        sleep(AWAY).await;
        self.stage.control_plane.start_ended().await?;
        self.stage.server.start_again().await?;
        self.operator.start_ended().await?;
        if let Some(push) = &mut self.push {
            push.start_ended().await?;
        }
        if let Some(roll) = &mut self.roll {
            roll.operator().start_ended().await?;
        }
        if let Some(manage) = &mut self.manage {
            manage.operator().start_ended().await?;
        }
        println!("  all run again");
        Ok(())
    }

    fn ended(&mut self) -> Vec<(String, ExitStatus)> {
        let mut ended = self.stage.control_plane.ended();
        let server = self.stage.server.process();
        ended.extend(server.status().map(|status| (server.name().to_owned(), status)));
        ended.extend(self.operator.ended());
        ended.extend(self.push.iter_mut().flat_map(PushStage::ended));
        ended.extend(self.roll.iter_mut().filter_map(|roll| roll.operator().ended()));
        ended.extend(self.manage.iter_mut().filter_map(|manage| manage.operator().ended()));
        ended
    }
}
